"""Rows per second of fit and transform, from parquet to parquet, and of requests to what was fitted.

    python -m benchmarks.workflow [--data criteo movielens] [--rows 4000000] [--rounds 3] [--peers]
    python -m benchmarks.workflow --device gpu --rows 16000000 [--times 3] [--cluster 1 2]
    python -m benchmarks.workflow --requests [--rows 2000000]

Criteo's work: 13 counts filled, clipped, logged and normalised, 26 columns of ids made categories,
the label cast. MovieLens': genres joined to the ratings as lists, users, movies and genres made
categories, the rating compared. On a CPU ours is compared with a Polars script written by hand and,
with `--peers`, which needs `make bench-peers`, NVTabular. On a GPU it is compared with the CPU of the
same machine, also on lists that are in the data; what the GPU cannot run is an error, never a
fallback, and each file is compared with the CPU's. GPU GB is the most that cuDF held in fit and
transform. With `--cluster` so many workers of a Dask cluster on this machine, of one thread and each
with a GPU of its own, are compared with one process.

Each contestant runs in a process of its own, so that peak memory is its own, and they take turns. On
a machine that others use too, the seconds of all cores are the steadier measure.

`--requests` fits to Criteo-like rows, and computes requests of two sizes in the numpy
interpreter, which serves inside Triton's python backend.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from benchmarks import data
from benchmarks.measure import Contestant, Taken, in_child, memory_gb, options, race, show, timed
from benchmarks.peers.polars_workflow import BY_HAND
from benchmarks.pipelines import PIPELINES, click_workflow
from workflow.expressions.cudf.rows_on_gpu import device_memory
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column

NVTABULAR = Path(".venv-nvtabular/bin/python")
SIZES = (1, 1024)
Made = dict[str, Any]


def ours(name: str, files: list[Path], out: Path, engine: str = "cpu") -> Made:
    """Fit, then transform to parquet: seconds of each, and GB of the GPU's memory in each."""
    start = time.perf_counter()
    with gpu_memory(engine) as in_fit:
        workflow = PIPELINES[name].workflow(files[0].parent).fit([*files], engine=engine)
    fitted = time.perf_counter()
    with gpu_memory(engine) as in_transform:
        workflow.transform_to_parquet([*files], out, engine=engine)
    seconds = {"fit": fitted - start, "transform": time.perf_counter() - fitted}
    return seconds | {"GPU GB": f"{in_fit[0]:.1f} / {in_transform[0]:.1f}"}


def on_cluster(count: int, engine: str, name: str, files: list[Path], out: Path) -> Made:
    """The same by so many workers of a cluster; seconds alone, as this process is only their client."""
    unknown = {"GPU GB": "", "processor": math.nan, "GB": math.nan}
    runs: list[Made] = []
    with cluster(count) as client:
        for _ in range(2):  # of the first run workers load what they use
            shutil.rmtree(out, ignore_errors=True)
            start = time.perf_counter()
            workflow = PIPELINES[name].workflow(files[0].parent)
            workflow.fit([*files], engine=engine, client=client)
            fitted = time.perf_counter()
            workflow.transform_to_parquet([*files], out, engine=engine, client=client)
            end = time.perf_counter()
            runs.append({"fit": fitted - start, "transform": end - fitted} | unknown)
    return {"first fit": runs[0]["fit"]} | runs[-1]


@contextmanager
def cluster(count: int) -> Iterator[Any]:
    """A client of workers of this machine, each with one thread and a GPU of its own."""
    from distributed import LocalCluster  # noqa: PLC0415 - an extra

    scheduler: Any = LocalCluster
    with scheduler(n_workers=0, dashboard_address=":0") as running, running.get_client() as client:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", running.scheduler_address]
        with ExitStack() as stack:
            for number in range(count):
                worker = subprocess.Popen(
                    [*command, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
                    env=os.environ | {"CUDA_VISIBLE_DEVICES": str(number)},
                    stderr=subprocess.DEVNULL,
                )
                stack.callback(worker.wait)
                stack.callback(worker.terminate)
            client.wait_for_workers(count, timeout=60)
            yield client


@contextmanager
def gpu_memory(engine: str) -> Iterator[list[float]]:
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


def by_hand(name: str, files: list[Path], out: Path) -> Made:
    """The Polars script."""
    return dict(BY_HAND[name](files, out))


def nvtabular(name: str, files: list[Path], out: Path) -> Made:
    """NVTabular, in its own environment."""
    script = Path(__file__).parent / "peers" / "nvtabular_workflow.py"
    command = [str(NVTABULAR), str(script), name, str(out), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"NVTabular failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


WAYS: dict[str, Any] = {
    "ours": ours,
    "by hand": by_hand,
    "NVTabular": nvtabular,
    "cpu": ours,
    "gpu": partial(ours, engine="gpu"),
} | {
    f"{engine}, {count} workers": partial(on_cluster, count, engine)
    for engine in ("cpu", "gpu")
    for count in (1, 2, 4, 8)
}


def run_here(way: str, name: str, files: list[Path], out: Path) -> Made:
    """One contestant in this process; its seconds, and its peak memory.

    The first run on a GPU loads cuDF, compiles kernels and starts threads, and so only its fit is
    shown, beside the run that counts.
    """
    runs: list[Made] = []
    for _ in range(2 if way in {"cpu", "gpu"} else 1):
        shutil.rmtree(out, ignore_errors=True)
        start = time.process_time()
        made: Made = WAYS[way](name, files, out)
        runs.append({"processor": time.process_time() - start, "GB": memory_gb("VmHWM")} | made)
    return {"first fit": runs[0]["fit"]} | runs[-1]


class OwnProcess(Contestant):
    """A contestant that runs in a process of its own.

    Args:
        way: its name.
        name: of the pipeline.
        files: the raw rows.
        rows: how many they are.
        out: a folder, which holds the last run's files.
    """

    def __init__(self, way: str, name: str, files: list[Path], rows: int, out: Path) -> None:
        super().__init__(way, self._run, rows)
        self._arguments = (way, name, files, out)
        self.ids, self.out = PIPELINES[name].ids, out
        self.made: list[Made] = []

    def _run(self) -> Taken:
        made = in_child(run_here, *self._arguments)
        self.made.append(made)
        seconds = made["fit"] + made["transform"]
        return Taken(seconds, made["processor"], self.checksum()[0])

    def checksum(self) -> list[int]:
        """The rows and the sum of each column's ids: equal however ids of one frequency are ranked."""
        made = pl.scan_parquet(self.out / "*.parquet")
        schema = made.collect_schema()
        columns = {c: pl.col(c) for c in self.ids}
        sums = [
            (e.explode(empty_as_null=False) if isinstance(schema[c], pl.List) else e)
            for c, e in columns.items()
        ]
        row = made.select(pl.len().alias("rows"), *(e.cast(pl.Int64).sum() for e in sums))
        return [int(value) for value in row.collect(engine="streaming").row(0)]

    def median(self, what: str) -> float:
        """Over the rounds."""
        return statistics.median(made[what] for made in self.made)


def compare(name: str, ways: Sequence[str], parsed: argparse.Namespace) -> None:
    """Run the contestants in turns and print a table."""
    rows = parsed.rows * parsed.times
    files = PIPELINES[name].write(parsed.folder / name, parsed.rows) * parsed.times
    racers = [OwnProcess(way, name, files, rows, parsed.folder / f"out_{way}") for way in ways]
    race(racers, parsed.rounds)
    first = racers[0]
    table = []
    for racer in racers:
        line = {
            "": f"{name}, {racer.name}",
            "fit s": racer.median("fit"),
            "transform s": racer.median("transform"),
            "rows/s": racer.rate,
            f"{first.name} to it": first.against(racer),
            "CPU s": racer.median("processor"),
            f"CPU of {first.name} to it": first.against(racer, "processor"),
            "peak GB": racer.median("GB"),
            "sums of ids": "equal" if racer.checksum() == first.checksum() else "DIFFERENT",
        }
        if parsed.device == "gpu":
            line["first fit s"] = racer.median("first fit")
            line["GPU GB"] = racer.made[-1]["GPU GB"]
            line["differences"] = difference(first.out, racer.out)
        table.append(line)
    show(f"{name}, {rows:,} rows, medians of {parsed.rounds} rounds", table)
    for racer in racers:
        shutil.rmtree(racer.out)


def difference(left: Path, right: Path) -> str:
    """Say how the files of two engines differ: floats by a share of their size, else anything."""
    names = sorted(file.name for file in left.glob("*.parquet"))
    if names != sorted(file.name for file in right.glob("*.parquet")):
        return "other files"
    worst = 0.0
    for name in names:
        a, b = pl.read_parquet(left / name), pl.read_parquet(right / name)
        if a.schema != b.schema or a.height != b.height:
            return f"{name}: {a.schema} and {b.schema}, {a.height} and {b.height} rows"
        for x, y in zip(a, b, strict=True):
            worst = max(worst, relative_difference(x, y))
            if worst > 1e-3:
                return f"{name}: column {x.name!r} differs"
    return "none" if worst == 0 else f"floats by {worst:.1e}"


def relative_difference(x: pl.Series, y: pl.Series) -> float:
    """The largest difference of two columns' values to their size; 1 where they are no floats."""
    if isinstance(x.dtype, pl.List):
        if not x.list.len().equals(y.list.len()):
            return 1.0
        return relative_difference(x.explode(empty_as_null=False), y.explode(empty_as_null=False))
    if x.dtype.is_float():
        is_close = x.is_finite() & y.is_finite()
        if not x.filter(~is_close.fill_null(False)).equals(y.filter(~is_close.fill_null(False))):
            return 1.0
        a, b = (each.filter(is_close).to_numpy() for each in (x, y))
        scale = np.maximum(np.abs(a) + np.abs(b), 1e-3)
        return float(np.max(np.abs(a - b) / scale, initial=0.0))
    return 0.0 if x.equals(y) else 1.0


def measure_requests(rows: int, rounds: int) -> None:
    """Print the median time of a request in the numpy interpreter."""
    fitted = data.raw_clicks(max(rows, SIZES[-1]), np.random.default_rng(0))
    program = fold_tables(click_workflow().fit(fitted).remove_inputs("label").program)
    run = NumpyInterpreter(program)
    table = []
    for size in SIZES:
        request = {name: to_column(fitted[name][:size]) for name in program.inputs}
        racer = Contestant("", partial(timed, partial(run, request), 1), 1)
        race([racer], max(5, 100 * rounds // max(1, size // 64)))
        table.append({"rows": size, "us": racer.seconds * 1e6})
    show(f"{len(program.inputs)} columns, {len(program.steps)} steps", table)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    folder = Path("build/benchmarks")
    parser = options(__doc__, devices=True, rows=4_000_000, rounds=3, times=1, folder=folder)
    parser.add_argument("--data", nargs="+", choices=[*PIPELINES])
    parser.add_argument("--cluster", nargs="+", type=int, choices=(1, 2, 4, 8), default=[])
    parser.add_argument("--peers", action="store_true", help="NVTabular 23.08 too")
    parser.add_argument("--requests", action="store_true", help="to the numpy interpreter, instead")
    parsed = parser.parse_args(arguments)
    if parsed.requests:
        measure_requests(parsed.rows, parsed.rounds)
        return
    if parsed.peers and not NVTABULAR.exists():
        sys.exit(f"Expected {NVTABULAR}, which `make bench-peers` makes. Received: no such file.")
    ways = ["cpu", "gpu"] if parsed.device == "gpu" else ["ours", "by hand"]
    if parsed.cluster:
        clusters = [f"{parsed.device}, {count} workers" for count in parsed.cluster]
        ways = [ways[-1] if parsed.device == "gpu" else "cpu", *clusters]
    known = PIPELINES if parsed.device == "gpu" else BY_HAND
    for name in parsed.data or known:
        compare(name, ways + ["NVTabular"] * parsed.peers, parsed)


if __name__ == "__main__":
    main()
