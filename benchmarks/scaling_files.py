"""Costs of many files and small row groups, beside Polars and pyarrow reading the same.

    python -m benchmarks.scaling_files [--quick]

Files of a thousand rows, all of one type or of two types in turns, are listed, fitted to, written anew
and read by a shuffled loader; so is one file of row groups of 10, 100 and 1,000 rows, by a shuffled
loader. Polars and pyarrow do the same work by hand: Polars scans the files, those of a type at once, and
counts and averages; pyarrow reads each row group, in a shuffled order, and puts its rows into another.

Time is the processor's, user and system. The exponent is the slope of log cost over log size from the
second size on, after the cost of the fewest, which is the start-up, is taken off. Two things are
flagged, and make the command fail: an exponent above 1.15, and a cost above three times the plain one at
the largest size. A difference below `NOISE` is not told from the noise of a shared machine.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import least, options, show
from benchmarks.scaling_costs import MOST_EXPONENT, exponent_of
from loader import KerasSequenceLoader
from workflow import Workflow, ops

ROWS = 1_000
FILES = (10, 100, 1_000)
GROUPS = (100, 1_000, 10_000)
# In seconds.
NOISE = 0.1
MOST_OF_PLAIN = 3.0
# A cost is the least of so many runs, or of as many as take so many seconds.
REPEATS, MOST_REPEATED = 5, 20.0
BATCH = 4_096
COLUMNS = ("user", "item", "price")
TYPES = {"user": pl.Int64, "item": pl.Int64, "price": pl.Float64}

Action = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One piece of work over data of growing size.

    Attributes:
        title: what it is.
        sizes: numbers of files or row groups.
        make: of a folder and a size, the work and the same by plain means.
    """

    title: str
    sizes: tuple[int, ...]
    make: Callable[[Path, int], tuple[Action, Action]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, print a table, and fail where a cost grows faster than it should."""
    parser = options(__doc__)
    parser.add_argument("--quick", action="store_true", help="leave the largest size out")
    quick = parser.parse_args(arguments).quick
    flags: list[str] = []
    show("Cost of files and row groups", _rows(flags, quick=quick))
    if flags:
        sys.exit(f"{len(flags)} costs are too high:\n" + "\n".join(flags))


def cases() -> Iterator[Case]:
    """All pieces of work."""
    for title, turns in (("one type", 1), ("two types", 2)):
        for work in (fit, transform, epoch_of_files):
            name = work.__name__.removesuffix("_of_files")
            yield Case(f"{name}, files of {title}", FILES, partial(work, turns=turns))
    for rows in (10, 100, 1_000):
        sizes = tuple(size for size in GROUPS if size * rows <= 1_000_000)
        yield Case(f"epoch, row groups of {rows}", sizes, partial(epoch_of_groups, rows=rows))


def _rows(flags: list[str], *, quick: bool) -> Iterator[dict[str, str]]:
    for case in cases():
        yield from measured(case, flags, quick=quick)


def measured(case: Case, flags: list[str], *, quick: bool) -> Iterator[dict[str, str]]:
    """A row of the table for each size of a case; what is too high is added to the flags."""
    sizes = case.sizes[:-1] if quick else case.sizes
    found: list[list[float]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            work, plain = case.make(Path(folder), size)
            if not found:  # what is imported and compiled at the first call
                work(), plain()
            found.append(least(work, plain, repeats=REPEATS, seconds=MOST_REPEATED))
        ours, theirs = found[-1]
        slope = exponent_of(sizes[: len(found)], [one for one, _ in found], NOISE)
        yield {
            "": case.title,
            "files, row groups": f"{size:,}",
            "ours": f"{ours:.3f} s",
            "by hand": f"{theirs:.3f} s",
            "ratio": f"{ours / theirs:.1f}",
            "exponent": "-" if slope is None else f"{slope:.2f}",
        }
    if slope is not None and slope > MOST_EXPONENT:
        flags.append(f"{case.title}: exponent {slope:.2f}")
    if ours > MOST_OF_PLAIN * theirs + NOISE:
        flags.append(
            f"{case.title}: {ours:.2f} s for {sizes[-1]}, {ours / theirs:.1f} times the plain {theirs:.2f} s"
        )


def rows_of(count: int, seed: int) -> pl.DataFrame:
    """Rows of two ids and a price."""
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": random.integers(0, 5_000, count),
            "item": random.integers(0, 500, count),
            "price": random.random(count),
        }
    )


def write_files(folder: Path, count: int, turns: int) -> list[list[Path]]:
    """Files of `ROWS` rows in as many types as there are turns; the files of each type."""
    kinds: list[list[Path]] = [[] for _ in range(turns)]
    for number in range(count):
        frame = rows_of(ROWS, number)
        path = folder / f"{number:06}.parquet"
        frame.cast({"user": pl.Int32} if number % turns else {}).write_parquet(path)
        kinds[number % turns].append(path)
    return kinds


def scanned(kinds: Sequence[Sequence[Path]]) -> pl.LazyFrame:
    """All files by hand: a scan for each type."""
    return pl.concat(pl.scan_parquet(list(paths)).cast(pl.Schema(TYPES)) for paths in kinds)


def made_by_hand(kinds: Sequence[Sequence[Path]]) -> list[pl.DataFrame]:
    """The vocabularies, the mean and the deviation of all files."""
    rows = scanned(kinds)
    counts = [rows.group_by(name).len().sort("len", name) for name in ("user", "item")]
    price = rows.select(mean=pl.col("price").mean(), std=pl.col("price").std())
    return pl.collect_all([*counts, price], engine="streaming")


def workflow() -> Workflow:
    """Two vocabularies, a mean and a deviation."""
    return Workflow((["user", "item"] >> ops.Categorify()) + (["price"] >> ops.Normalize()))


def fit(folder: Path, count: int, *, turns: int) -> tuple[Action, Action]:
    """Fit a workflow to files."""
    kinds = write_files(folder, count, turns)
    return lambda: workflow().fit(folder), lambda: made_by_hand(kinds)


def transform(folder: Path, count: int, *, turns: int) -> tuple[Action, Action]:
    """Transform files to a file."""
    raw = folder / "raw"
    raw.mkdir()
    kinds = write_files(raw, count, turns)
    fitted = workflow().fit(raw)
    users, items, price = made_by_hand(kinds)
    of_users, of_items = (table.with_row_index("id", 3) for table in (users, items))

    def plain() -> None:
        rows = scanned(kinds).select(
            pl.col("user").replace_strict(of_users["user"], of_users["id"]),
            pl.col("item").replace_strict(of_items["item"], of_items["id"]),
            (pl.col("price") - price["mean"][0]) / price["std"][0],
        )
        rows.collect(engine="streaming").write_parquet(folder / "plain.parquet")

    return lambda: fitted.transform_to_parquet(raw, tempfile.mkdtemp(dir=folder)), plain


def epoch_of_files(folder: Path, count: int, *, turns: int) -> tuple[Action, Action]:
    """Open and read files once, in a shuffled order."""
    files = [path for kind in write_files(folder, count, turns) for path in kind]
    return partial(epoch, folder), partial(groups_by_pyarrow, files)


def epoch_of_groups(folder: Path, count: int, *, rows: int) -> tuple[Action, Action]:
    """Open and read a file of small row groups once, in a shuffled order."""
    file = folder / "data.parquet"
    # By pyarrow, since Polars takes no fewer rows than it likes.
    pq.write_table(rows_of(count * rows, 0).to_arrow(), file, row_group_size=rows)
    return partial(epoch, file), partial(groups_by_pyarrow, [file])


def epoch(paths: Path) -> None:
    """Take every batch of a shuffled loader."""
    loader = KerasSequenceLoader(
        paths,
        BATCH,
        label_names=["price"],
        cat_names=["user", "item"],
        shuffle=True,
        seed=0,
        device="cpu",
    )
    for _ in loader:
        pass


def groups_by_pyarrow(files: Sequence[Path]) -> list[pa.Table]:
    """Each row group of each file, in a shuffled order, its rows in another."""
    opened = [pq.ParquetFile(file) for file in files]
    places = [(file, n) for file in opened for n in range(file.num_row_groups)]
    random = np.random.default_rng(0)
    found = []
    for number in random.permutation(len(places)):
        file, group = places[number]
        table = file.read_row_group(group, columns=list(COLUMNS))
        found.append(table.take(random.permutation(len(table))))
    return found


if __name__ == "__main__":
    main()
