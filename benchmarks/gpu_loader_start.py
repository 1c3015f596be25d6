"""What beginning and ending an epoch cost on an NVIDIA GPU, alone and in `model.fit`.

    python -m benchmarks.gpu_loader_start [--rows 40000000] [--calls 8] [--rounds 3] [--trace]

An epoch's first batch waits for the first row groups; an epoch that is given up waits for what is
being read. In a fit both are told apart from the steps in between, with a batch that stays on the
GPU beside them; `--trace` shows where those go. About 60 seconds on an H200.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import keras
import tensorflow as tf

from benchmarks import gpu_trace as trace
from benchmarks.gpu_loader_data import FOLDER, as_int64, make_data, make_loader, wait
from benchmarks.gpu_loader_fit import make_model
from benchmarks.gpu_profile import Observed

BATCH = 65_536


class Calls(keras.callbacks.Callback):
    """Notes when each call of the training function has ended; Keras waits for the GPU before.

    Attributes:
        ends: in seconds; the first is when the fit began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Begins to count."""
        self.ends.append(time.perf_counter())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Counts a call."""
        self.ends.append(time.perf_counter())


def alone(files: list[Path], rounds: int) -> None:
    """Print how long the first batch takes, and giving up after it."""
    for batch_size in (BATCH, 16_384):
        loader = make_loader(files, batch_size)
        first, end = [], []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            batches = iter(loader)
            _, y = next(batches)
            wait(y)
            ready = time.perf_counter()
            del batches
            first.append(ready - start)
            end.append(time.perf_counter() - ready)
        times = (statistics.median(each[1:]) * 1e3 for each in (first, end))
        print("batch {:,}: first after {:.1f} ms, given up in {:.1f} ms".format(batch_size, *times))


def in_fit(files: list[Path], together: int, calls: int, rounds: int, *, traced: bool) -> None:
    """Print the milliseconds of the first call's steps, of those after it, and of the end."""
    loader = make_loader(files, BATCH)
    data = loader.map(lambda x, y: ({n: as_int64(t) for n, t in x.items()}, y))
    x, y = next(iter(data))
    model = make_model("int64", together)
    feeds = {"one batch": tf.data.Dataset.from_tensors((x, y)).repeat(), "loader": data}
    for number in range(rounds + 1):
        for name, batches in feeds.items():
            seen = Calls()
            model.fit(
                batches, steps_per_epoch=calls * together, verbose=0, shuffle=False,
                callbacks=[seen],
            )  # fmt: skip
            wait(model.trainable_variables[-1])
            end = time.perf_counter()
            passed = [(b - a) * 1e3 for a, b in zip(seen.ends, seen.ends[1:], strict=False)]
            if number:
                print(
                    f"fit, {together} steps a call, {name:10}: first call {passed[0]:7.1f} ms, then "
                    f"{statistics.median(passed[1:]):7.1f} a call ({min(passed[1:]):.1f} to "
                    f"{max(passed[1:]):.1f}), end {(end - seen.ends[-1]) * 1e3:5.1f}",
                    flush=True,
                )
    for name, batches in feeds.items() if traced else ():
        observed = Observed(warm=2, calls=2)
        model.fit(
            batches, steps_per_epoch=7 * together, verbose=0, shuffle=False, callbacks=[observed]
        )
        print(f"\n{name}: {observed.seconds / 2 / together * 1e3:.2f} ms a step before the trace")
        trace.show(observed.on_device, 2 * together, 14)
        spent = trace.times(observed.on_host, lambda event: event.name)
        trace.table("operations on the host", spent, 2 * together, 14)


def main() -> None:
    """Run, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    files = make_data(options.folder, options.rows, lists=False)
    alone(files, options.rounds)
    in_fit(files, 20, options.calls, options.rounds, traced=options.trace)


if __name__ == "__main__":
    main()
