"""How busy a GPU is in `model.fit`, and where the time of a training step goes.

    python -m benchmarks.gpu_profile [--model mlp] [--precision bfloat16] [--feed] [--steps 96]

Trains one of the models of `benchmarks.gpu_training` with the split step, on batches that stay on
the device or (`--feed`) on those of the loader. Some steps of a fit are timed, and then as many
traced by TensorFlow's profiler: which kernels and which operations took the time, what was copied
between host and device, and how long the device waited; on a CPU, TensorFlow's operations. It
reads the profiler's own file, so TensorBoard need not be there.

The GPU is busy while at least one kernel runs. Tracing slows host and device down a little, so the
share is that of a step in the trace.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import keras
import tensorflow as tf

from benchmarks import gpu_trace as trace
from benchmarks import training_data as data
from benchmarks import training_models as networks
from training import compile_model, optimizers

MODELS = {
    "mlp": (networks.our_mlp, data.CRITEO, 65_536),
    "wide_and_deep": (networks.our_wide_and_deep, data.WIDE_AND_DEEP, 131_072),
}


OPTIMIZERS = {"sgd": optimizers.SGD, "adagrad": optimizers.Adagrad, "adam": optimizers.Adam}


class Observed(keras.callbacks.Callback):
    """Times some calls of the training function in a fit, and traces as many thereafter.

    Before it tells a callback of a call, Keras reads the metrics, and so waits for the device.

    Args:
        warm: calls to leave out at the beginning.
        calls: to time, and to trace.

    Attributes:
        seconds: of the calls that were timed.
        on_device: what the device did, if there is a GPU, by start.
        on_host: what the host did.
    """

    def __init__(self, warm: int, calls: int) -> None:
        super().__init__()
        self.seconds = 0.0
        self.on_device: list[trace.Event] = []
        self.on_host: list[trace.Event] = []
        self._calls = 0
        self._borders = (warm, warm + calls, warm + 2 * calls)
        self._folder = tempfile.TemporaryDirectory()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Counts the calls."""
        self._calls += 1
        if self._calls in self._borders:
            self._reached(self._borders.index(self._calls))

    def _reached(self, border: int) -> None:
        now = time.perf_counter()
        if border == 0:
            self.seconds = -now
        elif border == 1:
            self.seconds += now
            options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
            tf.profiler.experimental.start(self._folder.name, options)
        else:
            tf.profiler.experimental.stop()
            self.on_device, self.on_host = trace.read_trace(Path(self._folder.name))


def feed(batch: int, rows: int) -> Any:
    """The loader's batches of an epoch, shuffled."""
    from benchmarks import gpu_loader_data as parquet  # noqa: PLC0415 - made only if wanted

    files = parquet.make_data(parquet.FOLDER, rows, lists=False)
    return parquet.make_loader(files, batch, drop_last=True)


def parse() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=96, help="to time, and to trace")
    parser.add_argument("--together", type=int, default=32, help="steps a call")
    parser.add_argument("--ids", default="int64", help="the dtype of batches in memory")
    parser.add_argument("--shrink", type=int, default=1, help="divides the cardinalities")
    parser.add_argument("--feed", action="store_true", help="by the loader, from parquet")
    parser.add_argument("--rows", type=int, default=16_000_000, help="of the parquet files")
    parser.add_argument("--top", type=int, default=24, help="lines of a table")
    return parser.parse_args()


def fitted(options: argparse.Namespace, batch: int) -> Observed:
    """Fit a model, and what was observed of that; the loader begins an epoch for it."""
    build, shape, _ = MODELS[options.model]
    shape = shape.shrunk(options.shrink)
    keras.utils.set_random_seed(0)
    ids = "int32" if options.feed else options.ids
    model = build(shape, ids)
    compile_model(
        model,
        OPTIMIZERS[options.optimizer](0.01),
        precision=options.precision,
        steps_per_execution=options.together,
    )
    resident = [] if options.feed else data.on_device(shape, batch, ids, 4)
    batches = data.Repeated(resident) if resident else feed(batch, options.rows)
    calls = options.steps // options.together
    observed = Observed(warm=1, calls=calls)
    for count, callbacks in ((1, []), (1 + 2 * calls, [observed])):  # the first compiles
        model.fit(
            batches, steps_per_epoch=count * options.together, verbose=0, shuffle=False,
            callbacks=callbacks,
        )  # fmt: skip
    return observed


def main() -> None:
    """The command line."""
    options = parse()
    batch = options.batch or MODELS[options.model][2]
    steps = options.steps // options.together * options.together
    needed = (2 * steps + options.together) * batch
    if options.feed and options.rows < needed:
        raise SystemExit(f"Expected --rows of at least {needed}. Received: {options.rows}.")
    observed = fitted(options, batch)
    milliseconds = observed.seconds / steps * 1e3
    print(
        f"{options.model}, {options.precision}, {options.optimizer}, batch {batch:,}, {options.together} steps a call, "
        f"{'fed by the loader' if options.feed else 'batches in memory'}: "
        f"{milliseconds:.3f} ms a step, {batch / milliseconds / 1e3:.2f} M samples/s"
    )
    if observed.on_device:
        trace.show(observed.on_device, steps, options.top)
    spent = trace.times(observed.on_host, lambda event: event.name)
    trace.table("operations on the host, of all threads", spent, steps, options.top)


if __name__ == "__main__":
    main()
