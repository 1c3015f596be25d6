"""Where the time of an epoch on an NVIDIA GPU goes: the reader thread's steps, and the loop's.

    python -m benchmarks.gpu_loader_parts [--rows 40000000] [--rounds 3] [--folder /tmp/gpu_loader]
        [--trace]

Elapsed time beyond a thread's processor time is waiting: for the GPU, or for the other thread,
as Python runs one at a time. "a batch" is the loop's handing over of its forty tensors. `--trace`
shows TensorFlow's operations and the GPU's kernels for each batch of the compiled loop.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import tensorflow as tf

from benchmarks.gpu_loader import GraphEpoch
from benchmarks.gpu_loader_data import FOLDER, make_data, make_loader, python_epoch
from benchmarks.gpu_trace import busy, read_trace, table, times
from loader.batches import prefetch
from loader.tensorflow.generator_dataset import StreamRegistry


class Clock:
    """Adds up the time that functions take."""

    def __init__(self) -> None:
        self.spent: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def watch(self, owner: Any, name: str, label: str) -> None:
        """Time every call of a function from now on."""
        setattr(owner, name, self._timed(getattr(owner, name), label))

    def _timed(self, function: Callable[..., Any], label: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            elapsed, busy = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                passed = (time.perf_counter() - elapsed, time.thread_time() - busy)
                self.spent[label].append(passed)

        return timed


def watch(loader: Any, clock: Clock) -> None:
    """Time the steps of a loader's epochs."""
    source = loader._epochs._source  # noqa: SLF001 - these are what costs
    clock.watch(source._reader._tables, "read", "reader: decode")  # noqa: SLF001
    clock.watch(source._reader, "_rows", "reader: shuffle, lay out")  # noqa: SLF001
    for name, label in (("_order", "draw the order"), ("_borrow", "side by side")):
        clock.watch(source._reader, name, f"reader: shuffle, lay out: {label}")  # noqa: SLF001
    clock.watch(source._cutter, "cut", "reader: cut")  # noqa: SLF001
    clock.watch(source, "_block", "reader: views")
    clock.watch(loader._transport, "to_batch", "loop: a batch")  # noqa: SLF001


def show(title: str, clock: Clock, seconds: list[float], rows: int) -> None:
    """Print milliseconds an epoch."""
    epochs = len(seconds)
    rate = rows / statistics.median(seconds) / 1e6
    print(f"\n{title}: {rate:.1f} M rows/s, {statistics.mean(seconds) * 1e3:.0f} ms an epoch")
    print(f"{'':42}{'calls':>8}{'elapsed':>10}{'processor':>11}{'us a call':>11}{'median':>8}")
    for name, passed in sorted(clock.spent.items()):
        elapsed, busy = (sum(each) / epochs * 1e3 for each in zip(*passed, strict=True))
        calls = len(passed) / epochs
        middle = statistics.median(each for each, _ in passed) * 1e6
        print(
            f"{name:42}{calls:8.0f}{elapsed:10.1f}{busy:11.1f}{elapsed / calls * 1e3:11.1f}"
            f"{middle:8.1f}",
            flush=True,
        )


def trace(epoch: GraphEpoch, batches: int) -> None:
    """Print what TensorFlow's profiler sees of an epoch in a compiled loop, by batch."""
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
        tf.profiler.experimental.start(folder, options)
        epoch()
        tf.profiler.experimental.stop()
        on_device, on_host = read_trace(Path(folder))
    print(f"\na kernel ran {busy(on_device) / batches / 1e6:.1f} us a batch")
    table("kernels and copies", times(on_device, lambda event: event.name), batches, 12)
    table("operations on the host", times(on_host, lambda event: event.name), batches, 16)


def main() -> None:
    """Run, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    files = make_data(options.folder, options.rows, lists=False)
    clock = Clock()
    clock.watch(prefetch._Channel, "put", "reader: wait for the loop")  # noqa: SLF001
    clock.watch(prefetch.Prefetcher, "__next__", "loop: wait for the reader")
    clock.watch(StreamRegistry, "next", "compiled loop: next")
    for batch_size in (65_536, 16_384):
        loader = make_loader(files, batch_size)
        watch(loader, clock)
        compiled = GraphEpoch(loader)
        epochs: dict[str, Callable[[], Any]] = {
            "Python": functools.partial(python_epoch, loader),
            "compiled": compiled,
        }
        for kind, epoch in epochs.items():
            epoch()
            clock.spent.clear()
            seconds = []
            for _ in range(options.rounds):
                start = time.perf_counter()
                epoch()
                seconds.append(time.perf_counter() - start)
            show(f"{kind} loop, batch {batch_size:,}, shuffled", clock, seconds, options.rows)
        if options.trace:
            trace(compiled, len(loader))


if __name__ == "__main__":
    main()
