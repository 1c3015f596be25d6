"""Profiles of the time on a GPU: of a training step, of the loader's epoch, and of fit and transform.

    python -m benchmarks.profile step --device gpu [--model mlp] [--precision bfloat16] [--feed]
    python -m benchmarks.profile loader --device gpu --rows 40000000 [--trace]
    python -m benchmarks.profile workflow --device gpu --rows 4000000

step: some steps of a `model.fit` are timed, and then as many traced by TensorFlow's profiler: which
kernels and which operations took the time, what was copied between host and device, and how long the
device waited; on a CPU, TensorFlow's operations. The batches stay on the device, or (`--feed`) come
from the loader. The GPU is busy while at least one kernel runs. Tracing slows host and device down a
little, so the share is that of a step in the trace.

loader: the reader thread's steps and the loop's. Elapsed time beyond a thread's processor time is
waiting: for the GPU, or for the other thread, as Python runs one at a time. "a batch" is the loop's
handing over of its forty tensors. `--trace` adds kernels and operations of the compiled loop.

workflow: the best of three runs of each stage: read, compute, copy to the host, write.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import tensorflow as tf

from benchmarks import data, models, resident, trace
from benchmarks.feeds import open_loader
from benchmarks.fitting import Clock
from benchmarks.loader import compiled_loop, count_rows
from benchmarks.measure import options, show, timed, use
from benchmarks.models import CRITEO, OPTIMIZERS, WIDE_AND_DEEP, Way
from benchmarks.pipelines import PIPELINES
from loader.batches import prefetch
from loader.tensorflow.generator_dataset import StreamRegistry
from workflow.engine.engine import collect_on_gpu, rows_on_gpu
from workflow.expressions.cudf.exceptions import VERBS_ON_GPU
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.polars.stages import compile_stages, run_stages
from workflow.transform.parquet_sink import ROW_GROUP_ROWS, ROWS_ON_GPU

ROWS_PER_FILE = 1_000_000
Traced = tuple[list[trace.Event], list[trace.Event]]


@contextmanager
def traced() -> Iterator[Traced]:
    """Trace some work: the events of the device and of the host, there at the end."""
    found: Traced = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        profiler = tf.profiler.experimental
        profiler.start(folder, profiler.ProfilerOptions(python_tracer_level=0))
        yield found
        profiler.stop()
        for events, read in zip(found, trace.read_trace(Path(folder)), strict=True):
            events.extend(read)


class Observed(Clock):
    """The time of the steps between two of a fit, and a trace of those from there to its end.

    Args:
        first: the first that is timed.
        last: the first that is traced.
    """

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first)
        self._last = last
        self._tracing: Any = None
        self.found: Traced = ([], [])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Begin to trace where the timed steps end."""
        if self._tracing is None:
            super().on_train_batch_end(batch, logs)
            if batch + 1 == self._last:
                self._tracing = traced()
                self.found = self._tracing.__enter__()

    def on_train_end(self, logs: Any = None) -> None:
        """End the trace."""
        self._tracing.__exit__(None, None, None)
        super().on_train_end(logs)


def profile_step(parsed: argparse.Namespace) -> None:
    """Time and trace a fit; the loader begins an epoch for it."""
    build, shape, batch = {
        "mlp": (models.our_mlp, CRITEO, 65_536),
        "wide": (models.our_wide_and_deep, WIDE_AND_DEEP, 131_072),
    }[parsed.model]
    batch = parsed.batch or batch
    together, ids = parsed.together, "int32" if parsed.feed else "int64"
    split = {"precision": parsed.precision, "steps_per_execution": together}
    model = Way("", build, functools.partial(OPTIMIZERS[parsed.optimizer], 0.01), split).model(
        shape, ids
    )
    batches: Any
    if parsed.feed:
        files = data.clicks(parsed.folder, parsed.rows, device=parsed.device)
        batches = open_loader(files, batch, drop_last=True)
    else:
        batches = resident.repeated(resident.batches(shape, batch, ids))
    steps = parsed.steps // together * together
    observed = Observed(together, together + steps)
    fit = functools.partial(model.fit, batches, verbose=0, shuffle=False)
    fit(steps_per_epoch=together)  # traces
    fit(steps_per_epoch=together + 2 * steps, callbacks=[observed])
    trained = observed.taken.amount
    if trained != 2 * steps * batch:
        raise SystemExit(f"Expected {2 * steps * batch:,} rows (--rows). Received: {trained:,}.")
    on_device, on_host = observed.found
    milliseconds = observed.taken.seconds / steps * 1e3
    print(f"{milliseconds:.3f} ms a step, {batch / milliseconds / 1e3:.2f} M samples/s")
    if on_device:
        trace.show_device(on_device, steps)
    operations = trace.times(on_host, lambda event: event.name)
    trace.table("operations on the host, of all threads", operations, steps)


class Stopwatch:
    """A sum of the time that functions take."""

    def __init__(self) -> None:
        self.spent: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def watch(self, owner: Any, name: str, label: str) -> None:
        """Time every call of a function from now on."""
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            elapsed, busy = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                passed = (time.perf_counter() - elapsed, time.thread_time() - busy)
                self.spent[label].append(passed)

        setattr(owner, name, measured)

    def show(self, title: str, seconds: list[float], rows: int) -> None:
        """Print milliseconds an epoch."""
        table = []
        for name, passed in sorted(self.spent.items()):
            elapsed, busy = (sum(each) / len(seconds) * 1e3 for each in zip(*passed, strict=True))
            calls = len(passed) / len(seconds)
            line = {"": name, "calls": calls, "elapsed ms": elapsed, "processor ms": busy}
            middle = statistics.median(each for each, _ in passed) * 1e6
            table.append(line | {"us a call": elapsed / calls * 1e3, "median us": middle})
        rate = rows / statistics.median(seconds) / 1e6
        show(f"{title}: {rate:.1f} M rows/s", table)


def watch(batches: Any, clock: Stopwatch) -> None:
    """Time the steps of a loader's epochs on a GPU."""
    source = batches._epochs._source  # noqa: SLF001 - these are what costs
    clock.watch(source._reader._tables, "read", "reader: decode")  # noqa: SLF001
    clock.watch(source._reader, "_rows", "reader: shuffle, lay out")  # noqa: SLF001
    for name, label in (("_order", "draw the order"), ("_borrow", "side by side")):
        clock.watch(source._reader, name, f"reader: shuffle, lay out: {label}")  # noqa: SLF001
    clock.watch(source._dealer, "deal", "reader: deal batches")  # noqa: SLF001
    clock.watch(source, "_block", "reader: views")
    clock.watch(batches._transport, "to_batch", "loop: a batch")  # noqa: SLF001


def profile_loader(parsed: argparse.Namespace) -> None:
    """Time the steps of epochs in a Python loop and in a compiled one."""
    files = data.clicks(parsed.folder, parsed.rows, device="gpu")
    clock = Stopwatch()
    clock.watch(prefetch._Channel, "put", "reader: wait for the loop")  # noqa: SLF001
    clock.watch(prefetch.Prefetcher, "__next__", "loop: wait for the reader")
    clock.watch(StreamRegistry, "next", "compiled loop: next")
    for batch_size in (65_536, 16_384):
        batches = open_loader(files, batch_size)
        if parsed.device == "gpu":
            watch(batches, clock)
        compiled = compiled_loop(batches, parsed.rows)
        python = functools.partial(count_rows, batches)
        epochs: dict[str, Callable[[], int]] = {"Python": python, "compiled": compiled}
        for kind, epoch in epochs.items():
            epoch()
            clock.spent.clear()
            seconds = [timed(epoch).seconds for _ in range(parsed.rounds)]
            clock.show(f"{kind} loop, batch {batch_size:,}, shuffled", seconds, parsed.rows)
        if parsed.trace:
            with traced() as (on_device, on_host):
                compiled()
            print(f"\na kernel ran {trace.busy(on_device) / len(batches) / 1e6:.1f} us a batch")
            for title, events in (("kernels and copies", on_device), ("host", on_host)):
                spent = trace.times(events, lambda event: event.name)
                trace.table(title, spent, len(batches))


def profile_workflow(parsed: argparse.Namespace) -> None:
    """Time the stages of Criteo's work. One before "write" ends in a few bytes, copied to the host."""
    pipeline, folder = PIPELINES["criteo"], parsed.folder / "criteo"
    files = pipeline.write(folder, parsed.rows)
    workflow = pipeline.workflow(folder)
    table = [stage("fit", parsed.rows, lambda: workflow.fit([*files], engine="gpu"))]
    stages = compile_stages(fold_tables(workflow.program), VERBS_ON_GPU)
    rows = min(parsed.rows, ROWS_ON_GPU)
    part = pl.scan_parquet([*files]).slice(0, rows)
    query = run_stages(part, stages)
    few = {"read": part, "read, compute": query}
    for name, each in few.items():
        one = each.select(pl.all().max())
        table.append(stage(name, rows, functools.partial(collect_on_gpu, one)))
    table.append(stage("read, compute, copy to the host", rows, lambda: collect_on_gpu(query)))
    with rows_on_gpu() as gpu, tempfile.TemporaryDirectory() as out:
        made = gpu.hold(query)
        paths = [Path(out, f"{n}.parquet") for n in range(max(1, rows // ROWS_PER_FILE))]
        arguments = (paths, ROWS_PER_FILE, "snappy", ROW_GROUP_ROWS)
        write = functools.partial(made.write_parquet, *arguments)
        table.append(stage("write, snappy", rows, write))
    show("Stages of fit and transform", table)


def stage(name: str, rows: int, work: Callable[[], Any]) -> dict[str, Any]:
    """Run a stage three times, and make its line."""
    best = min(timed(work, 1).seconds for _ in range(3))
    return {"": name, "rows": rows, "s": best, "M rows/s": rows / best / 1e6}


PARTS = {"step": profile_step, "loader": profile_loader, "workflow": profile_workflow}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    folder = Path("build/benchmarks")
    parser = options(
        __doc__, devices=True, rows=16_000_000, rounds=3, folder=folder, steps=96, together=32
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--model", choices=("mlp", "wide"), default="mlp")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--feed", action="store_true", help="by the loader, from parquet")
    parser.add_argument("--trace", action="store_true", help="the compiled loop, too")
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    PARTS[parsed.part](parsed)


if __name__ == "__main__":
    main()
