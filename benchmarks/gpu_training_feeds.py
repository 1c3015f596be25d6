"""`model.fit` on a GPU, fed in the ways that people go: the headlines of the seeds side by side.

    python -m benchmarks.gpu_training_feeds [--rows 32000000] [--seconds 90]

The model is the MLP of `benchmarks.gpu_training`. TensorFlow's windowed loader parses records of
`tf.train.Example`, one a row, in as many threads as there are cores; prebatched records hold the
bytes of whole batches, which are only as good as the shuffle that was made when they were written;
ours reads parquet on the GPU, shuffled.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import keras
import tensorflow as tf

from benchmarks import gpu_loader_data as parquet
from benchmarks import training_data as data
from benchmarks import training_models as networks
from benchmarks.loader_peers import SAMPLE, make_prebatched, make_tfrecord, prebatched
from training import compile_model, optimizers


@dataclass(frozen=True)
class Contestant:
    """A way to feed the model, and how that is trained.

    Attributes:
        name: for the table.
        feed: makes the batches, for Keras' own layers with ids in int64.
        steps: how many to measure.
        policy: the Keras dtype policy under which Keras' own model is built.
        ours: options of `compile_model` for our model; None for Keras' own layers and step.
    """

    name: str
    feed: Callable[[], tf.data.Dataset]
    steps: int
    policy: str = "float32"
    ours: dict[str, Any] | None = None

    def model(self, shape: data.Shape) -> keras.Model:
        """The compiled model."""
        keras.utils.set_random_seed(0)
        if self.ours is not None:
            model = networks.our_mlp(shape, "int32")
            compile_model(model, optimizers.SGD(0.05), **self.ours)
            return model
        keras.config.set_dtype_policy(self.policy)
        model = networks.keras_mlp(shape, "int64")
        keras.config.set_dtype_policy("float32")
        model.compile(keras.optimizers.SGD(0.05), "binary_crossentropy", jit_compile=False)
        return model

    def rate(self, shape: data.Shape, batch: int) -> float:
        """Samples per second."""
        model, batches = self.model(shape), self.feed()
        together = model.steps_per_execution
        for steps in (together, together, self.steps):
            start = time.perf_counter()
            model.fit(batches, steps_per_epoch=steps, verbose=0, shuffle=False)
            parquet.wait(model.trainable_variables[-1])
        return batch * self.steps / (time.perf_counter() - start)


def contestants(sample: Path, records: Path, files: list[Path], batch: int) -> Iterator[Contestant]:
    """The first is what the others are compared with."""

    def from_parquet() -> Any:
        return parquet.make_loader(files, batch, drop_last=True)

    def from_parquet_for_keras() -> Any:
        return from_parquet().map(lambda x, y: (int64(x), parquet.as_int64(y)))

    def from_records() -> Any:
        return (
            prebatched(records, shuffle=True)
            .map(lambda x, y: (int64(x), parquet.as_int64(y)))
            .repeat()
        )

    def from_examples() -> Any:
        return windowed(sample, batch)

    together = {"steps_per_execution": 32}
    bfloat16 = {"precision": "bfloat16", **together}
    yield Contestant("TFRecord, windowed; Keras, float32", from_examples, 6)
    yield Contestant("parquet, ours; split, bfloat16", from_parquet, 480, ours=bfloat16)
    yield Contestant("parquet, ours; split, float32", from_parquet, 480, ours=together)
    yield Contestant("TFRecord, windowed; Keras, mixed_float16", from_examples, 6, "mixed_float16")
    yield Contestant("parquet, ours; Keras, float32", from_parquet_for_keras, 200)
    yield Contestant("TFRecord, prebatched; Keras, float32", from_records, 60)


def int64(x: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The features with ids that stay on the GPU."""
    return {name: parquet.as_int64(tensor) for name, tensor in x.items()}


def windowed(path: Path, batch: int) -> tf.data.Dataset:
    """TensorFlow's own loader, with all cores."""
    spec = {name: tf.io.FixedLenFeature((1,), tf.float32) for name in parquet.CONTS}
    spec |= {name: tf.io.FixedLenFeature((1,), tf.int64) for name in [*parquet.CATS, "label"]}
    threads = os.cpu_count()
    return tf.data.experimental.make_batched_features_dataset(
        str(path), batch, spec, label_key="label",
        reader_num_threads=threads, parser_num_threads=threads,
    )  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=32_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--seconds", type=float, default=90, help="start nothing after that")
    parser.add_argument("--only", default="", help="contestants whose names hold this")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    files = parquet.make_data(parquet.FOLDER, options.rows, lists=False)
    sample = make_tfrecord(parquet.FOLDER, files)
    records = make_prebatched(parquet.FOLDER, files[:1], options.batch)
    sizes = {
        "tf.train.Example": sample.stat().st_size / SAMPLE,
        "prebatched": records.stat().st_size / (options.rows // len(files)),
        "parquet": sum(file.stat().st_size for file in files) / options.rows,
    }
    print("bytes a row:", ", ".join(f"{name} {size:.0f}" for name, size in sizes.items()))
    base = None
    for contestant in contestants(sample, records, files, options.batch):
        if options.only not in contestant.name:
            continue
        if time.monotonic() > deadline:
            print(f"{contestant.name:<44} skipped: out of time")
            continue
        rate = contestant.rate(data.CRITEO, options.batch)
        base = base or rate
        print(f"{contestant.name:<44}{rate / 1e6:9.3f} M/s {rate / base:8.2f}x", flush=True)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
