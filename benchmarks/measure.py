"""Time, processor time, memory and work done: races in turns, and the tables of their results."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

import psutil

from benchmarks.charts import chart, table_of

T = TypeVar("T")
# The charts of the tables that commands print.
CHARTS = Path(__file__).parents[1] / "build" / "benchmarks"
# What other projects do, in an environment of their own.
PEERS = (Path(".venv-nvtabular/bin/python"), "-P", Path(__file__).with_name("peers.py"))
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Taken:
    """The cost of one run.

    Attributes:
        seconds: by the clock.
        processor: seconds of all threads of this process.
        amount: rows, or calls, that the run really got through.
    """

    seconds: float
    processor: float
    amount: int


def timed(work: Callable[[], Any], amount: int | None = None) -> Taken:
    """Measure some work, which returns its amount unless that is given."""
    processor, start = time.process_time(), time.perf_counter()
    made = work()
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    return Taken(seconds, processor, made if amount is None else amount)


@dataclass
class Contestant:
    """A way to do some work, and what its runs took.

    Attributes:
        name: for the table.
        run: does the work once.
        amount: what a run has to get through; a run that does less fails the benchmark, since its
            time would be that of less work.
    """

    name: str
    run: Callable[[], Taken]
    amount: int
    taken: list[Taken] = field(default_factory=list)

    def take_turn(self) -> None:
        """Run once and keep what it took.

        Raises:
            SystemExit: it got through another amount.
        """
        taken = self.run()
        if taken.amount != self.amount:
            raise SystemExit(
                f"Expected a run of {self.name!r} to get through {self.amount:,} rows. "
                f"Received: {taken.amount:,}. Give it more data (--rows), or fewer steps."
            )
        self.taken.append(taken)

    def median(self, cost: str) -> float:
        """The median of what its runs took."""
        return statistics.median(getattr(taken, cost) for taken in self.taken)

    @property
    def seconds(self) -> float:
        """Median seconds of a run."""
        return self.median("seconds")

    @property
    def rate(self) -> float:
        """Rows a second, by the median."""
        return self.amount / self.seconds

    def against(self, base: Contestant, cost: str = "seconds") -> Ratio:
        """The cost of a row of the base divided by that of a row here, in the same round."""
        return ratio(
            [getattr(taken, cost) / base.amount for taken in base.taken],
            [getattr(taken, cost) / self.amount for taken in self.taken],
        )


@dataclass(frozen=True)
class Ratio:
    """The ratio of two costs in the same round, over all rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.least:.2f} to {self.most:.2f})"


def ratio(base: Sequence[float], other: Sequence[float]) -> Ratio:
    """Compare costs within rounds.

    Example:
        >>> print(ratio([3.0, 4.0, 9.0], [1.0, 2.0, 3.0]))
        3.00x (2.00 to 3.00)
    """
    found = [a / b for a, b in zip(base, other, strict=True)]
    return Ratio(statistics.median(found), min(found), max(found))


def race(contestants: Iterable[Contestant], rounds: int) -> list[Contestant]:
    """Let all take turns, round by round, since machines are noisy: a ratio within a round counts."""
    racers = [*contestants]
    for _ in range(rounds):
        for contestant in racers:
            contestant.take_turn()
    return racers


@dataclass(frozen=True)
class Calls:
    """The cost of a call, of each one and by turns.

    Attributes:
        seconds: of each call, until the answer is there.
        processor: seconds of the processor that a call took in this process, of each turn.
    """

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def in_turns(calls: Mapping[T, Callable[[], object]], seconds: float, turn: int) -> dict[T, Calls]:
    """Times of calls that take turns, in an order by chance, so that all meet the same load.

    Args:
        calls: what is called.
        seconds: for so long each, on average.
        turn: calls of a turn: in turns of one a call finds its code gone from the processor's caches.
    """
    taken = {key: Calls() for key in calls}
    keys, chance = list(calls), Random(0)  # noqa: S311 - an order, no secret
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for key in chance.sample(keys, len(keys)):
            begin = time.process_time()
            for _ in range(turn):
                start = time.perf_counter()
                calls[key]()
                taken[key].seconds.append(time.perf_counter() - start)
            taken[key].processor.append((time.process_time() - begin) / turn)
    return taken


def show(title: str, rows: Iterable[Mapping[Any, Any]]) -> None:
    """Print a table in Markdown, and draw a chart of it in `CHARTS`.

    Args:
        title: of the table, and the name of the chart's file.
        rows: the cells of each row by the titles of their columns; printed as they come. The first
            row has every column.
    """
    head: list[Any] = []
    cells: list[list[str]] = []
    for row in rows:
        if not cells:
            head = list(row)
            print(f"\n{title}\n")
            print("|", " | ".join(map(_cell, head)), "|")
            print("|" + "---|" * len(head))
        cells.append([_cell(row.get(name, "")) for name in head])
        print("|", " | ".join(cells[-1]), "|", flush=True)
    command = Path(sys.argv[0]).stem
    name = re.sub(r"\W+", "-", f"{command}-{title}".lower())[:_LONGEST_NAME].strip("-")
    if cells and (table := table_of(name, [*map(_cell, head)], cells)):
        CHARTS.mkdir(parents=True, exist_ok=True)
        file = CHARTS / f"{name}.svg"
        file.write_text(chart(table))
        print(f"\nChart: {os.path.relpath(file)}", flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def in_child(function: Callable[..., T], *arguments: Any, **environment: str) -> T:
    """Call a function in a fresh process, whose memory, threads and environment are its own."""
    spawn = multiprocessing.get_context("spawn")
    with patch.dict(os.environ, environment), ProcessPoolExecutor(1, spawn) as pool:
        return pool.submit(function, *arguments).result()


def least(*works: Callable[[], object], repeats: int, seconds: float) -> list[float]:
    """Processor seconds of each, the least of some runs, in which they take turns.

    As in `timeit` the garbage collector is off: when it runs depends on what was made before, and it
    takes more for each object the more there are.

    Args:
        works: what is measured.
        repeats: runs of each.
        seconds: of all runs together, after which none is repeated.
    """
    rounds: list[list[float]] = []
    while len(rounds) < repeats and sum(map(sum, rounds)) < seconds:
        rounds.append([])
        for work in works:
            gc.collect()
            gc.disable()
            try:
                rounds[-1].append(timed(work, 1).processor)
            finally:
                gc.enable()
    return [min(costs) for costs in zip(*rounds, strict=True)]


def memory_gb(what: str) -> float:
    """Memory of this process in GB: VmRSS is now, VmHWM the most so far, RssAnon what no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) / 2**20


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Count the most resident GB of some work, those there before included, into a list of one."""
    peak = [0.0]
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    yield peak
    peak[0] = memory_gb("VmHWM")


def children_seconds() -> float:
    """The processor time of all processes that this one has started, and of theirs."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # It may have ended since.
            times = child.cpu_times()
            seconds += times.user + times.system
    return seconds


def options(
    doc: str | None, *, devices: bool = False, files: bool = False, **defaults: Any
) -> argparse.ArgumentParser:
    """A command line with the options that most commands share.

    Args:
        doc: the module's docstring.
        devices: whether it has `--device`.
        files: whether it has `--folder`, for the rows that it makes.
        **defaults: name -> value of options; their types follow from the values. A tuple has any number
            of values, and False is a switch.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if devices:
        parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    if files:
        defaults["folder"] = Path("build/benchmarks")
    for name, value in defaults.items():
        if value is False:
            parser.add_argument(f"--{name}", action="store_true")
            continue
        kind, count = (type(value[0]), "+") if isinstance(value, tuple) else (type(value), None)
        said = f"default: {value}"
        parser.add_argument(f"--{name}", type=kind, nargs=count, default=value, help=said)
    return parser


def use(device: str) -> None:
    """Let TensorFlow have the GPUs, or none.

    Raises:
        SystemExit: there is no GPU.
    """
    import tensorflow as tf  # noqa: PLC0415 - some commands do without

    if device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return
    # Read when the first GPU is used. cuDF, too, takes its memory from CUDA's pool.
    os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")
    if not tf.config.list_physical_devices("GPU"):
        sys.exit("Expected an NVIDIA GPU. Received: none. Use --device cpu.")
