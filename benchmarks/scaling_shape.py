"""The cost of many columns, nodes, files and row groups: processor seconds and exponents.

    python -m benchmarks.scaling_shape [--only columns nodes]
    python -m benchmarks.scaling_shape --only nodes --sizes 20 500 1000 2000
    python -m benchmarks.scaling_shape --only files files-of-two-types row-groups-of-10

"columns" is one node for every kind of column, "nodes" one for each column, of tables of 200 rows; half
of the columns are ids, and the others numbers. Files of a thousand rows, all of one type or of two types
in turns, and one file of row groups of 10, 100 and 1,000 rows are read by a shuffled loader; files are
also fitted to and written anew. Polars and pyarrow do the same by hand: Polars scans the files, those of
a type at once, and counts and averages; pyarrow reads each row group, in a shuffled order, and puts its
rows into another. Each case runs in a process of its own.

The exponent is the slope of log cost over log size, after the cost of the fewest, which is the start-up,
is taken off. The command fails at an exponent above 1.15 (above 1.3 for `models.mlp`, of which Keras'
part grows with the square) in each of three measurements, and at a cost above three times that by hand at
the largest size. A difference below `NOISE` counts in no case: a shared machine varies by as much.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import in_child, least, options, show
from benchmarks.scaling import MOST_EXPONENT, exponent_of
from workflow import Workflow, ops
from workflow.graph.node import ConcatNode, Node

ROWS, ROWS_PER_FILE, BATCH = 200, 1_000, 4_096
# Seconds of the processor.
NOISE = 0.25
# A cost is the least of so many, or of as many as take so many seconds: the first run may fill caches,
# so only what takes longer than all of these is measured once.
REPEATS, MOST_REPEATED = 7, 5.0
# Where it grows too fast, a case is measured so many times.
MOST_MEASURED = 3
# Keras flattens all inputs of a functional model for each of them, a quarter of the cost at 2,000.
MOST_EXPONENTS = {"models.mlp": 1.3}
MOST_OF_PLAIN = 3.0
TYPES = {"user": pl.Int64, "item": pl.Int64, "price": pl.Float64}

Action = Callable[[], Any]
# Each with the same by hand, or without.
Actions = Iterator[tuple[str, *tuple[Action, ...]]]
# Of each action, by size: seconds of ours, and by hand.
Costs = dict[str, list[list[float]]]


@dataclass(frozen=True)
class Case:
    """Work over data of growing size.

    Attributes:
        sizes: numbers of columns, files or row groups.
        actions: of a size and a folder.
    """

    sizes: tuple[int, ...]
    actions: Callable[[int, Path], Actions]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, print a table of each, and fail where a cost grows faster than it should."""
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", help="in place of each case's own")
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES], help="cases")
    parsed = parser.parse_args(arguments)
    flags: list[str] = []
    for name in parsed.only:
        sizes = sorted(parsed.sizes or CASES[name].sizes)
        show(f"Processor time, {name}", measured(name, sizes, flags))
    if flags:
        sys.exit(f"{len(flags)} costs are too high:\n" + "\n".join(flags))


def measured(case: str, sizes: Sequence[int], flags: list[str]) -> Iterator[dict[str, str]]:
    """A row for each action of a case; what is too high is added to the flags."""
    for action, costs in _costs(case, sizes).items():
        exponent = _exponent(sizes, costs)
        row = {"": f"{case}, {action}"}
        row |= {f"{n:,}": f"{cost[0]:.2f} s" for n, cost in zip(sizes, costs, strict=True)}
        row["exponent"] = "-" if exponent is None else f"{exponent:.2f}"
        if is_too_high(action, exponent):
            flags.append(f"{case}, {action}: exponent {exponent:.2f}")
        for plain in costs[-1][1:]:
            ours = costs[-1][0]
            row |= {"by hand": f"{plain:.2f} s", "ratio": f"{ours / plain:.1f}"}
            if ours > MOST_OF_PLAIN * plain + NOISE:
                flags.append(f"{case}, {action}: {ours / plain:.1f} times that by hand")
        yield row


def is_too_high(action: str, exponent: float | None) -> bool:
    """Whether a cost grows faster than it should.

    Example:
        >>> is_too_high("fit", 1.2), is_too_high("models.mlp", 1.2), is_too_high("fit", None)
        (True, False, False)
    """
    return (exponent or 0) > MOST_EXPONENTS.get(action, MOST_EXPONENT)


def _exponent(sizes: Sequence[int], costs: list[list[float]]) -> float | None:
    return exponent_of(sizes, [cost[0] for cost in costs], NOISE)


def _costs(case: str, sizes: Sequence[int]) -> Costs:
    """The costs of each action; where one grows too fast, the least of some measurements."""
    # Columns of 2,000 are trained on no GPU, and the threads would tell of the machine.
    environment = {"POLARS_MAX_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    costs: Costs = in_child(measure_here, case, sizes, **environment)
    for _ in range(MOST_MEASURED - 1):
        if not any(is_too_high(action, _exponent(sizes, own)) for action, own in costs.items()):
            break
        again = in_child(measure_here, case, sizes, **environment)
        costs = {name: np.minimum(own, again[name]).tolist() for name, own in costs.items()}
    return costs


def measure_here(case: str, sizes: Sequence[int]) -> Costs:
    """Measure a case in this process."""
    costs: Costs = {}
    for size in (sizes[0], *sizes):  # at first what is imported and made once
        with tempfile.TemporaryDirectory() as scratch:
            for action, *works in CASES[case].actions(size, Path(scratch)):
                cost = least(*works, repeats=REPEATS, seconds=MOST_REPEATED)
                costs.setdefault(action, []).append(cost)
    return {action: each[1:] for action, each in costs.items()}


def _wide_rows(columns: int) -> tuple[pl.DataFrame, list[str], list[str]]:
    random = np.random.default_rng(0)
    ids, numbers = ([f"{kind}{n}" for n in range(columns // 2)] for kind in ("id", "number"))
    made: dict[str, Any] = {name: random.integers(0, 20, ROWS) for name in ids}
    made |= {name: random.random(ROWS) for name in numbers}
    return pl.DataFrame(made | {"label": random.integers(0, 2, ROWS)}), ids, numbers


def _columns(columns: int, scratch: Path) -> Actions:
    rows, ids, numbers = _wide_rows(columns)
    graph = (ids >> ops.Categorify()) + (numbers >> ops.FillMissing() >> ops.Normalize())
    workflow = Workflow(graph + "label")
    yield from _workflow_actions(workflow, rows, scratch)
    yield from _network_actions(workflow, ids, numbers, scratch)


def _nodes(columns: int, scratch: Path) -> Actions:
    rows, ids, numbers = _wide_rows(columns)

    def graph() -> Node:
        parts = [[name] >> ops.Categorify() for name in ids]
        parts += [[name] >> ops.FillMissing() >> ops.Normalize() for name in numbers]
        return ConcatNode(*parts)

    yield "graph", lambda: Workflow(graph())
    yield from _workflow_actions(Workflow(graph()), rows, scratch)


def _workflow_actions(workflow: Workflow, rows: pl.DataFrame, scratch: Path) -> Actions:
    file = scratch / "rows.parquet"
    rows.write_parquet(file)
    yield "fit", lambda: workflow.fit(rows)
    yield "fit from files", lambda: workflow.fit(file)
    yield "transform", lambda: workflow.transform(rows).collect()
    yield "transform to files", lambda: _written(workflow, file, scratch)
    yield "save", lambda: workflow.save(scratch / "workflow")
    yield "load", lambda: Workflow.load(scratch / "workflow").output_schema


def _written(workflow: Workflow, rows: Path, scratch: Path) -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        workflow.transform_to_parquet(rows, folder)


def _network_actions(
    workflow: Workflow, ids: Sequence[str], numbers: Sequence[str], scratch: Path
) -> Actions:
    from exporter import export_tensorflow_ensemble  # noqa: PLC0415 - TensorFlow takes long
    from training import models  # noqa: PLC0415

    workflow.transform_to_parquet(scratch / "rows.parquet", scratch / "train")
    settings = {"cat_names": ids, "cont_names": numbers, "label_names": ["label"]}
    yield "open a loader", lambda: _loader(scratch / "train", 64, **settings)
    loader = _loader(scratch / "train", 64, **settings)
    yield "an epoch", lambda: [None for _ in loader]

    made: list[Any] = []

    def network() -> None:
        made[:] = [models.mlp(workflow.output_schema.without(["label"]), hidden=(8,))]

    yield "models.mlp", network

    def exported() -> None:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            export_tensorflow_ensemble(made[0], workflow, "wide", folder, ["label"])

    yield "export", exported


def _loader(paths: Path, batch: int, **settings: Any) -> Any:
    from loader import KerasSequenceLoader  # noqa: PLC0415 - TensorFlow takes long

    return KerasSequenceLoader(paths, batch, shuffle=True, seed=0, device="cpu", **settings)


def _few_columns(count: int, seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    ids = {"user": random.integers(0, 5_000, count), "item": random.integers(0, 500, count)}
    return pl.DataFrame({**ids, "price": random.random(count)})


def _files(count: int, scratch: Path, *, types: int) -> Actions:
    """Files of a thousand rows, in so many types."""
    raw = scratch / "raw"
    raw.mkdir()
    kinds: list[list[Path]] = [[] for _ in range(types)]
    for number in range(count):
        path = raw / f"{number:06}.parquet"
        frame = _few_columns(ROWS_PER_FILE, number)
        frame.cast({"user": pl.Int32} if number % types else {}).write_parquet(path)
        kinds[number % types].append(path)

    def scanned() -> pl.LazyFrame:
        return pl.concat(pl.scan_parquet(list(paths)).cast(pl.Schema(TYPES)) for paths in kinds)

    def fit_by_hand() -> list[pl.DataFrame]:
        rows = scanned()
        counts = [rows.group_by(name).len().sort("len", name) for name in ("user", "item")]
        price = rows.select(mean=pl.col("price").mean(), std=pl.col("price").std())
        return pl.collect_all([*counts, price], engine="streaming")

    users, items, price = fit_by_hand()
    of_users, of_items = (table.with_row_index("id", 3) for table in (users, items))

    def transform_by_hand() -> None:
        rows = scanned().select(
            pl.col("user").replace_strict(of_users["user"], of_users["id"]),
            pl.col("item").replace_strict(of_items["item"], of_items["id"]),
            (pl.col("price") - price["mean"][0]) / price["std"][0],
        )
        rows.collect(engine="streaming").write_parquet(scratch / "plain.parquet")

    graph = (["user", "item"] >> ops.Categorify()) + (["price"] >> ops.Normalize())
    fitted = Workflow(graph).fit(raw)
    yield "fit", lambda: Workflow(graph).fit(raw), fit_by_hand
    yield "transform", lambda: _written(fitted, raw, scratch), transform_by_hand
    yield (
        "epoch",
        partial(_epoch, raw),
        partial(_groups_by_pyarrow, [path for kind in kinds for path in kind]),
    )


def _groups(count: int, scratch: Path, *, rows: int) -> Actions:
    """A file of row groups of so many rows."""
    file = scratch / "data.parquet"
    # By pyarrow, since Polars takes no fewer rows than it likes.
    pq.write_table(_few_columns(count * rows, 0).to_arrow(), file, row_group_size=rows)
    yield "epoch", partial(_epoch, file), partial(_groups_by_pyarrow, [file])


def _epoch(paths: Path) -> None:
    """Open files and take every batch of a shuffled loader."""
    for _ in _loader(paths, BATCH, label_names=["price"], cat_names=["user", "item"]):
        pass


def _groups_by_pyarrow(files: Sequence[Path]) -> list[pa.Table]:
    """Each row group of each file, in a shuffled order, its rows in another."""
    opened = [pq.ParquetFile(file) for file in files]
    places = [(file, n) for file in opened for n in range(file.num_row_groups)]
    random = np.random.default_rng(0)
    found = []
    for number in random.permutation(len(places)):
        file, group = places[number]
        table = file.read_row_group(group, columns=[*TYPES])
        found.append(table.take(random.permutation(len(table))))
    return found


WIDE, FILES = (20, 250, 500, 1_000, 2_000), (10, 100, 1_000)
CASES = {
    "columns": Case(WIDE, _columns),
    "nodes": Case(WIDE, _nodes),
    "files": Case(FILES, partial(_files, types=1)),
    "files-of-two-types": Case(FILES, partial(_files, types=2)),
    "row-groups-of-10": Case((100, 1_000, 10_000), partial(_groups, rows=10)),
    "row-groups-of-100": Case((100, 1_000, 10_000), partial(_groups, rows=100)),
    "row-groups-of-1000": Case((100, 1_000), partial(_groups, rows=1_000)),
}

if __name__ == "__main__":
    main()
