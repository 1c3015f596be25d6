"""`model.fit` fed by the loader on a GPU, against the same step on a batch that stays there."""

from __future__ import annotations

import functools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks.gpu_loader_data import CARDINALITIES, CATS, CONTS, as_int64, make_loader, wait
from benchmarks.loader_peers import make_tfrecord
from benchmarks.rounds import ratio
from benchmarks.training_data import Repeated


def make_model(dtype: str, steps_per_execution: int) -> keras.Model:
    """The model of docs/benchmarks.md: 26 embeddings of width 16 and four dense layers of 1,024."""
    inputs = {name: keras.Input((1,), name=name, dtype="float32") for name in CONTS}
    inputs |= {name: keras.Input((1,), name=name, dtype=dtype) for name in CATS}
    embedded = [
        keras.layers.Flatten()(keras.layers.Embedding(int(size), 16)(inputs[name]))
        for name, size in zip(CATS, CARDINALITIES, strict=True)
    ]
    hidden = keras.layers.concatenate([*embedded, *(inputs[name] for name in CONTS)])
    for _ in range(4):
        hidden = keras.layers.Dense(1024, "relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(
        "sgd", "binary_crossentropy", jit_compile=False, steps_per_execution=steps_per_execution
    )
    return model


def fit(files: list[Path], batch_size: int, rounds: int) -> None:
    """`model.fit` from the loader against the same on one batch, and its copies to the host.

    Epochs are whole, so that their beginning and end count as they do for a user. "resident" is a
    batch that stays on the GPU; "tf.data" the same batch as `from_tensors` gives it, from the host.
    """
    loader = make_loader(files, batch_size)
    # Keras' own layers move int32 ids through the host, int64 ids not.
    data = loader.map(lambda x, y: ({n: as_int64(t) for n, t in x.items()}, y))
    x, y = next(iter(data))
    feeds = {
        "fit, resident": Repeated([(x, y)]),
        "fit, tf.data": tf.data.Dataset.from_tensors((x, y)).repeat(),
        "fit, loader": data,
    }
    for together in (1, 20):
        steps = len(loader) // together * together
        model = make_model("int64", together)
        step = tf.function(model.train_step)
        runs: dict[str, tuple[int, Callable[[int], Any]]] = {
            "step alone": (min(steps, 100), functools.partial(_repeat, step, (x, y)))
        }
        for name, batches in feeds.items():
            runs[name] = (steps, functools.partial(_train, model, batches))
        for _, run in runs.values():
            run(together)  # compiles
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, (count, run) in runs.items():
                times[name].append(_seconds(model, functools.partial(run, count)) / count)
        for name, passed in times.items():
            print(
                f"fit {batch_size:,}, {together} steps a call, {steps} steps: {name:14}"
                f"{statistics.median(passed) * 1e3:8.2f} ms"
                f"{batch_size / statistics.median(passed) / 1e6:7.2f} M/s"
                f"{ratio(times['fit, resident'], passed):7.3f} of resident",
                flush=True,
            )
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        model.fit(data, steps_per_epoch=20, verbose=0, shuffle=False)
        tf.profiler.experimental.stop()
        copies = device_to_host(Path(folder))
    print(f"copies to the host in 20 steps, by bytes: {dict(copies.most_common(8))}", flush=True)


def _repeat(function: Callable[[Any], Any], argument: Any, times: int) -> None:
    for _ in range(times):
        function(argument)


def _train(model: keras.Model, batches: Any, steps: int) -> None:
    model.fit(batches, steps_per_epoch=steps, verbose=0, shuffle=False)


def _seconds(model: keras.Model, run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    wait(model.trainable_variables[-1])
    return time.perf_counter() - start


def fit_windowed(files: list[Path], batch_size: int) -> None:
    """`model.fit` from TensorFlow's own loader over TFRecord of tf.train.Example."""
    path = make_tfrecord(files[0].parent, files)
    spec = {name: tf.io.FixedLenFeature((1,), tf.float32) for name in CONTS}
    spec |= {name: tf.io.FixedLenFeature((1,), tf.int64) for name in [*CATS, "label"]}
    threads = os.cpu_count()
    data = tf.data.experimental.make_batched_features_dataset(
        str(path), batch_size, spec, label_key="label",
        reader_num_threads=threads, parser_num_threads=threads,
    )  # fmt: skip
    model = make_model("int64", 1)
    steps = 6
    run = functools.partial(model.fit, data, steps_per_epoch=steps, verbose=0, shuffle=False)
    run()
    rate = steps * batch_size / _seconds(model, run) / 1e6
    print(f"fit {batch_size:,}, 1 steps a call: fit, TFRecord windowed {rate:7.3f} M/s", flush=True)


def device_to_host(folder: Path) -> Counter[int]:
    """How often the profiler saw a copy from the GPU to the host, by its size in bytes."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415 - only here

    found: Counter[int] = Counter()
    for file in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
        for plane in space.planes:
            if "GPU" not in plane.name:
                continue
            names = {number: each.name for number, each in plane.event_metadata.items()}
            stats = {number: each.name for number, each in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    if "MemcpyD2H" in names[event.metadata_id]:
                        details = [
                            s for s in event.stats if stats[s.metadata_id] == "memcpy_details"
                        ]
                        text = (
                            details[0].str_value or stats.get(details[0].ref_value, "")
                            if details
                            else ""
                        )
                        size = text.partition("size:")[2].split()
                        found[int(size[0]) if size else -1] += 1
    return found
