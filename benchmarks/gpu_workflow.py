"""Fit and transform on one GPU against the CPU of the same machine, and whether they agree.

    python -m benchmarks.gpu_workflow [--rows 16000000] [--times 1] [--seconds 240] [--folder build/gpu_workflow]

Three kinds of work: Criteo's, 13 counts and 26 columns of ids; MovieLens', whose genres are joined
as lists and made categories; and lists of the data itself, strings made categories. Each from
parquet to parquet. What the GPU cannot run is an error, never a fallback. No work is begun when
the seconds are over. GPU GB is the most that cuDF held of the GPU's memory, in fit and transform.
"""

from __future__ import annotations

import argparse
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from benchmarks import criteo, movielens
from workflow import Workflow, ops
from workflow.engine.cudf import device_memory


def criteo_work(folder: Path, rows: int) -> tuple[list[Path], Callable[[], Workflow]]:
    """13 counts and 26 columns of ids."""
    return criteo.make_raw(folder, rows), lambda: criteo.make_workflow(folder)


def movielens_work(folder: Path, rows: int) -> tuple[list[Path], Callable[[], Workflow]]:
    """Ids, and genres joined as lists."""
    return movielens.make_raw(folder, rows), lambda: movielens.make_workflow(folder)


def list_work(folder: Path, rows: int) -> tuple[list[Path], Callable[[], Workflow]]:
    """Lists that are in the data: of strings and of numbers, empty and missing ones too."""
    path = folder / f"lists_{rows}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        picked = np.minimum(random.zipf(1.2, rows), 2**40) * 7919 % 1000
        names = pl.Series(movielens.GENRES).gather(random.integers(0, len(movielens.GENRES), 2000))
        lengths = random.integers(0, 5, 1000)
        table = pl.DataFrame(
            {
                "genres": [names[2 * n : 2 * n + lengths[n]].to_list() for n in range(1000)],
                "clicks": [random.integers(0, 10**6, n).tolist() if n else None for n in lengths],
            },
            schema={"genres": pl.List(pl.String), "clicks": pl.List(pl.Int64)},
        )
        table[picked].write_parquet(path, compression="snappy", row_group_size=250_000)

    def make() -> Workflow:
        clicks = ["clicks"] >> ops.LambdaOp(lambda clicks: (clicks.cast("float64") + 1.0).log1p())
        return Workflow((["genres"] >> ops.Categorify(dtype="int32")) + (clicks >> ops.Normalize()))

    return [path], make


WORK = {"criteo": criteo_work, "movielens": movielens_work, "lists": list_work}


def run(make: Callable[[], Workflow], files: list[Path], out: Path, engine: str) -> dict[str, Any]:
    """Fit and transform on an engine: seconds of each, GB of the GPU's memory in each."""
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    with counted_memory(engine) as fit_memory:
        workflow = make().fit([*files], engine=engine)
    middle = time.perf_counter()
    with counted_memory(engine) as transform_memory:
        written = workflow.transform_to_parquet([*files], out, engine=engine)
    return {
        "fit": middle - start,
        "transform": time.perf_counter() - middle,
        "files": written,
        "memory": [fit_memory[0], transform_memory[0]],
    }


@contextmanager
def counted_memory(engine: str) -> Iterator[list[float]]:
    """The most GB that cuDF holds of the GPU's memory, in a list of one number at the end."""
    peak = [0.0]
    if engine != "gpu":
        yield peak
        return
    import rmm.mr  # noqa: PLC0415 - it comes with cuDF

    counts = rmm.mr.StatisticsResourceAdaptor(device_memory())
    counting = pl.GPUEngine(executor="in-memory", raise_on_fail=True, memory_resource=counts)
    with patch("workflow.engine.engine.gpu_engine", lambda: counting):
        yield peak
    peak[0] = counts.allocation_counts.peak_bytes / 1e9


def difference(left: list[Path], right: list[Path]) -> str:
    """What differs between the files of two engines: floats beyond 1e-6 of their size, else anything."""
    if len(left) != len(right):
        return f"{len(left)} and {len(right)} files"
    worst = 0.0
    for one, other in zip(left, right, strict=True):
        a, b = pl.read_parquet(one), pl.read_parquet(other)
        if a.schema != b.schema or a.height != b.height:
            return f"{one.name}: {a.schema} and {b.schema}, {a.height} and {b.height} rows"
        for x, y in zip(a, b, strict=True):
            worst = max(worst, relative_difference(x, y))
            if worst > 1e-3:
                return f"{one.name}: column {x.name!r} differs"
    return "none" if worst == 0 else f"floats by {worst:.1e}"


def relative_difference(x: pl.Series, y: pl.Series) -> float:
    """The largest difference of two columns' values to their size; 1 where they are no floats."""
    if isinstance(x.dtype, pl.List):
        if not x.list.len().equals(y.list.len()):
            return 1.0
        return relative_difference(x.explode(empty_as_null=False), y.explode(empty_as_null=False))
    if x.dtype.is_float():
        a, b = x.to_numpy(), y.to_numpy()
        scale = np.maximum(np.abs(a) + np.abs(b), 1e-3)
        return float(np.nanmax(np.abs(a - b) / scale, initial=0.0))
    return 0.0 if x.equals(y) else 1.0


def main() -> None:
    """Run the engines on each work, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--times", type=int, default=1, help="take the files so many times over")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--folder", type=Path, default=Path("build/gpu_workflow"))
    parser.add_argument("--engines", nargs="+", default=["cpu", "gpu"])
    parser.add_argument("--work", nargs="+", choices=[*WORK], default=[*WORK])
    options = parser.parse_args()
    start = time.perf_counter()
    print(
        f"{'work':10} {'engine':6} {'fit s':>8} {'transform s':>12} {'rows/s':>12} {'GPU GB':>12}"
        "  differences"
    )
    for name in options.work:
        files, make = WORK[name](options.folder, options.rows)
        files = files * options.times
        first: dict[str, Any] = {}
        for engine in options.engines:
            # The first run of an engine compiles kernels and starts threads.
            for label in (f"{engine}, first", engine):
                if time.perf_counter() - start > options.seconds:
                    print(f"{name:10} {label}: not begun, the seconds are over", flush=True)
                    continue
                try:
                    made = run(make, files, options.folder / f"{name}_{engine}", engine)
                except Exception:  # noqa: BLE001 - the other works are still to be measured
                    print(
                        f"{name:10} {engine:6} failed:\n{traceback.format_exc()[-1500:]}",
                        flush=True,
                    )
                    break
                if "," in label:
                    continue
                first = first or made
                speed = options.rows * options.times / (made["fit"] + made["transform"])
                memory = ", ".join(f"{one:.1f}" for one in made["memory"])
                print(
                    f"{name:10} {engine:6} {made['fit']:8.2f} {made['transform']:12.2f} {speed:12,.0f}"
                    f" {memory:>12}  {difference(first['files'], made['files'])}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
