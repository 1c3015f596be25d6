"""Rows per second of fit and transform, from parquet to parquet, and of requests to what was fitted.

    python -m benchmarks.workflow [--data criteo movielens] [--rows 4000000] [--rounds 3] [--peers]
    python -m benchmarks.workflow --device gpu --rows 16000000 [--times 3]
    python -m benchmarks.workflow --cluster 1 2 4 [--device gpu]
    python -m benchmarks.workflow --alone --rows 50000000
    python -m benchmarks.workflow --requests [--rows 2000000]

Criteo's work: 13 counts filled, clipped, logged and normalised, 26 columns of ids made categories,
the label cast. MovieLens': genres joined to the ratings as lists, users, movies and genres made
categories, the rating compared. On a CPU ours is compared with a Polars script written by hand and,
with `--peers`, which needs `make bench-peers`, NVTabular; `--alone` measures it without them. On a GPU
it is compared with the CPU of the same machine, also on lists that are in the data; what the GPU cannot
run is an error, never a fallback. GPU GB is the most that cuDF held. With `--cluster` so many workers of
a Dask cluster on this machine, of one thread and on a GPU each with one of its own, are compared with
one process; CPU s are then the workers'.

Each contestant runs in a process of its own, so that peak memory is its own, and they take turns. On
a machine that others use too, the seconds of all cores are the steadier measure. A run whose ids add up
to others than the first one's fails, and one of a GPU whose files differ from the CPU's.

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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import polars.selectors as cs
from polars.testing import assert_frame_equal

from benchmarks import data, measure
from benchmarks.by_hand import BY_HAND
from benchmarks.data import PIPELINES, click_workflow
from benchmarks.measure import Contestant, Taken, in_child, options, show
from workflow.expressions.cudf.rows_on_gpu import device_memory
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column

SIZES = (1, 1024)
Made = dict[str, Any]


@dataclass(frozen=True)
class Run(Taken):
    """A fit and a transform: their seconds, those of the process' first fit, and the most GB."""

    fit: float
    transform: float
    gb: float
    first_fit: float = math.nan
    gpu_gb: float = 0.0


def ours(name: str, files: list[Path], out: Path, engine: str = "cpu", client: Any = None) -> Made:
    """Fit, then transform to parquet: seconds of each."""
    start = time.perf_counter()
    workflow = PIPELINES[name].workflow(files[0].parent)
    workflow.fit([*files], engine=engine, client=client)
    fitted = time.perf_counter()
    workflow.transform_to_parquet([*files], out, engine=engine, client=client)
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}


def again(name: str, files: list[Path], out: Path, engine: str, client: Any = None) -> Made:
    """The second run of a process: the first one loads cuDF, compiles kernels and starts threads."""
    first = ours(name, files, out, engine, client)
    shutil.rmtree(out)
    own, workers = time.process_time(), measure.children_seconds()
    with gpu_memory(engine) as peak:
        made = ours(name, files, out, engine, client)
    spent = measure.children_seconds() - workers if client else time.process_time() - own
    return made | {"first_fit": first["fit"], "gpu_gb": peak[0], "processor": spent}


def on_cluster(name: str, files: list[Path], out: Path, engine: str, count: int) -> Made:
    """The same by workers of this machine, each with one thread and a GPU of its own."""
    from distributed import LocalCluster  # noqa: PLC0415 - an extra

    scheduler: Any = LocalCluster
    with (
        scheduler(n_workers=0, dashboard_address=":0") as running,
        running.get_client() as client,
        ExitStack() as stack,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", running.scheduler_address]
        for number in range(count):
            worker = subprocess.Popen(
                [*command, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
                env=os.environ | {"CUDA_VISIBLE_DEVICES": str(number)},
                stderr=subprocess.DEVNULL,
            )
            stack.callback(worker.wait)
            stack.callback(worker.terminate)
        client.wait_for_workers(count, timeout=60)
        return again(name, files, out, engine, client) | {"gb": math.nan}  # this is their client


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


def nvtabular(name: str, files: list[Path], out: Path) -> Made:
    """NVTabular, in its own environment."""
    command: list[Any] = [*measure.PEERS, name, out, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"NVTabular failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def by_hand(name: str, files: list[Path], out: Path) -> Made:
    """The Polars script."""
    return BY_HAND[name](files, out)


def run_here(work: Any, *arguments: Any) -> Made:
    """A contestant's run in this process: its seconds, and its peak memory."""
    start = time.process_time()
    made: Made = work(*arguments)
    return {"processor": time.process_time() - start, "gb": measure.memory_gb("VmHWM")} | made


class OwnProcess(Contestant):
    """A contestant that runs in a process of its own.

    Args:
        title: for the table.
        work: fits and transforms, given the pipeline's name, files and folder; returns `Run`'s fields.
        name: of the pipeline.
        files: the raw rows.
        rows: how many they are.
        folder: for what the last run writes.
    """

    def __init__(
        self, title: str, work: Any, name: str, files: list[Path], rows: int, folder: Path
    ) -> None:
        super().__init__(title, self._run, rows)
        self.out = folder / f"out_{title}"
        self._ids, self._arguments = PIPELINES[name].ids, (work, name, files, self.out)

    def _run(self) -> Taken:
        shutil.rmtree(self.out, ignore_errors=True)
        made = in_child(run_here, *self._arguments)
        return Run(made["fit"] + made["transform"], amount=self.checksum()[0], **made)

    def checksum(self) -> list[int]:
        """The rows and the sum of each column's ids: equal however ids of one frequency are ranked."""
        made = pl.scan_parquet(self.out / "*.parquet")
        ids = cs.by_name(self._ids)
        flat = (ids - cs.list(), (ids & cs.list()).explode(empty_as_null=False))
        row = made.select(pl.len().alias("rows"), *(e.cast(pl.Int64).sum() for e in flat))
        return [int(value) for value in row.collect(engine="streaming").row(0)]


def compare(name: str, ways: dict[str, Any], parsed: argparse.Namespace) -> None:
    """Run the contestants in turns and print a table."""
    rows = parsed.rows * parsed.times
    files = PIPELINES[name].write(parsed.folder / name, parsed.rows) * parsed.times
    racers = [OwnProcess(*way, name, files, rows, parsed.folder) for way in ways.items()]
    measure.race(racers, parsed.rounds)
    first = racers[0]
    table = []
    for racer in racers:
        if racer.checksum() != first.checksum():
            raise SystemExit(f"Expected ids that add up to those of {first.name}: {racer.name}.")
        line = {
            "": f"{name}, {racer.name}",
            "fit s": racer.median("fit"),
            "transform s": racer.median("transform"),
            "rows/s": racer.rate,
            f"{first.name} to it": first.against(racer),
            "CPU s": racer.median("processor"),
            f"CPU of {first.name} to it": first.against(racer, "processor"),
            "peak GB": racer.median("gb"),
        }
        if parsed.device == "gpu":
            compare_files(first.out, racer.out)
            line |= {"first fit s": racer.median("first_fit"), "GPU GB": racer.median("gpu_gb")}
        table.append(line)
    show(f"{name}, {rows:,} rows, medians of {parsed.rounds} rounds", table)
    for racer in racers:
        shutil.rmtree(racer.out)


def compare_files(left: Path, right: Path) -> None:
    """Fail where the files of two engines differ, in floats by more than rounding."""
    for name in {file.name for folder in (left, right) for file in folder.glob("*.parquet")}:
        assert_frame_equal(pl.read_parquet(left / name), pl.read_parquet(right / name))


def measure_requests(rows: int, seconds: float) -> None:
    """Print the median time of a request in the numpy interpreter."""
    fitted = data.raw_clicks(max(rows, SIZES[-1]), np.random.default_rng(0))
    program = fold_tables(click_workflow().fit(fitted).remove_inputs("label").program)
    run = NumpyInterpreter(program)
    columns = {size: {n: to_column(fitted[n][:size]) for n in program.inputs} for size in SIZES}
    calls = {size: partial(run, request) for size, request in columns.items()}
    table = [
        {"rows": size, "us": statistics.median(taken.seconds) * 1e6}
        for size, taken in measure.in_turns(calls, seconds, turn=100).items()
    ]
    show(f"{len(program.inputs)} columns, {len(program.steps)} steps", table)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    switches = dict.fromkeys(("alone", "peers", "requests"), False)
    counts = {"rows": 4_000_000, "rounds": 3, "times": 1}
    parser = options(__doc__, devices=True, files=True, **counts, **switches)
    parser.add_argument("--data", nargs="+", choices=[*PIPELINES])
    parser.add_argument("--cluster", nargs="+", type=int, help="workers of a Dask cluster")
    parsed = parser.parse_args(arguments)
    if parsed.requests:
        measure_requests(parsed.rows, parsed.rounds)
        return
    if parsed.peers and not measure.PEERS[0].exists():
        sys.exit(f"Expected {measure.PEERS[0]}, of `make bench-peers`. Received: no such file.")
    device = parsed.device
    ways: dict[str, Any] = {"ours": ours}
    if parsed.cluster:
        ways = {device: partial(again, engine=device)}
        ways |= {
            f"{device}, {count} workers": partial(on_cluster, engine=device, count=count)
            for count in parsed.cluster
        }
    elif device == "gpu":
        ways = {engine: partial(again, engine=engine) for engine in ("cpu", "gpu")}
    elif not parsed.alone:
        ways |= {"by hand": by_hand} | ({"NVTabular": nvtabular} if parsed.peers else {})
    for name in parsed.data or (PIPELINES if device == "gpu" else BY_HAND):
        compare(name, ways, parsed)


if __name__ == "__main__":
    main()
