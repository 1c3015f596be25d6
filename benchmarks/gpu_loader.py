"""Samples per second of the loader on an NVIDIA GPU, against cuDF's decoding alone, in one run.

    python -m benchmarks.gpu_loader [--rows 40000000] [--rounds 3] [--folder /tmp/gpu_loader]

The data is that of `benchmarks.loader`: 13 float32, 26 int32 and a label, in row groups of a
million; a second set has three columns of ten ids a row more. First every value of the GPU's
batches is compared with the CPU loader's. Then epochs are timed, the contestants taking turns:
the ratio to decoding is taken within a round, and medians are shown. Last, `model.fit` is
compared with the same train step on a batch that stays on the GPU, and the copies from the
device to the host are counted by TensorFlow's profiler.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from benchmarks.loader_peers import make_tfrecord
from loader import KerasSequenceLoader

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
LISTS = ["L1", "L2", "L3"]
CARDINALITIES = np.geomspace(10, 1_000_000, len(CATS)).astype(int)
FILES = 8
ROW_GROUP = 1_000_000
FOLDER = Path("/tmp/gpu_loader")  # noqa: S108 - a machine for one run
Epoch = Callable[[], tuple[int, int]]


def make_data(folder: Path, rows: int, *, lists: bool) -> list[Path]:
    """Write the files, unless they are there; one base file is shuffled into the others."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{rows}_{lists}_{number}.parquet" for number in range(FILES)]
    if all(file.exists() for file in files):
        return files
    random = np.random.default_rng(0)
    count = rows // FILES
    columns: dict[str, Any] = {name: random.standard_normal(count, np.float32) for name in CONTS}
    for name, size in zip(CATS, CARDINALITIES, strict=True):
        columns[name] = (random.pareto(1.0, count) % size).astype(np.int32)
    for name in LISTS if lists else []:
        ids = random.integers(0, 100_000, (count, 10), dtype=np.int32)
        columns[name] = pl.Series(ids).cast(pl.List(pl.Int32))
    columns["label"] = (random.random(count) < 0.25).astype(np.int32)
    base = pl.DataFrame(columns)
    for number, file in enumerate(files):
        frame = base if number == 0 else base[np.roll(np.arange(count), number * 12_345)]
        frame.write_parquet(file, compression="snappy", row_group_size=ROW_GROUP)
    return files


def make_loader(files: list[Path], batch_size: int, *, lists: bool = False, **more: Any) -> Any:
    """Ours."""
    cats = CATS + (LISTS if lists else [])
    return KerasSequenceLoader(
        files, batch_size, ["label"], cat_names=cats, cont_names=CONTS, seed=0, **more
    )


def feed(batch_size: int) -> Any:
    """An epoch for `benchmarks.gpu_training --feed benchmarks.gpu_loader:feed`, its ids int64."""
    files = make_data(FOLDER, 40_000_000, lists=False)
    loader = make_loader(files, batch_size, drop_last=True)
    return loader.map(lambda x, y: ({name: _as_int64(t) for name, t in x.items()}, y))


def decode_only(files: list[Path]) -> tuple[int, int]:
    """The limit: cuDF reads each file into GPU memory, and that is all."""
    import pylibcudf as plc  # noqa: PLC0415 - only where there is a GPU

    rows = 0
    for file in files:
        source = plc.io.types.SourceInfo([str(file)])
        options = plc.io.parquet.ParquetReaderOptions.builder(source).build()
        rows += plc.io.parquet.read_parquet(options).tbl.num_rows()
    return rows, -1


def python_epoch(data: Any) -> tuple[int, int]:
    """A Python loop over batches of eager tensors."""
    rows = batches = 0
    for _, y in data:
        rows += y.shape[0]
        batches += 1
    wait(y)
    return rows, batches


class GraphEpoch:
    """A compiled loop over batches, as in `model.fit` with many steps per execution."""

    def __init__(self, data: Any) -> None:
        self._data = data

        @tf.function
        def run(iterator: Any, steps: int) -> tf.Tensor:
            total = tf.zeros([], tf.float32)
            for _ in tf.range(steps):
                x, y = next(iterator)
                # Touches every column, so that none is left out, as floats, which stay on the GPU.
                total += tf.add_n([_as_float(x[name]) for name in CONTS + CATS] + [_as_float(y)])[
                    0, 0
                ]
            return total

        self._run = run

    def __call__(self) -> tuple[int, int]:
        """One epoch; the batches."""
        self._run(iter(self._data), tf.constant(len(self._data))).numpy()
        return -1, len(self._data)


def _as_float(tensor: tf.Tensor) -> tf.Tensor:
    return tensor if tensor.dtype == tf.float32 else tf.bitcast(tensor, tf.float32)


def wait(tensor: Any) -> None:
    """Wait for the GPU."""
    tf.reshape(tf.cast(tensor, tf.float32), [-1])[:1].numpy()


def _as_int64(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, tf.int64) if tensor.dtype == tf.int32 else tensor


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


def fit(files: list[Path], batch_size: int) -> None:
    """`model.fit` from the loader against the same step on one batch, and its copies to the host."""
    loader = make_loader(files, batch_size)
    # Keras' own layers move int32 ids through the host, int64 ids not.
    data = loader.map(lambda x, y: ({n: _as_int64(t) for n, t in x.items()}, y))
    x, y = next(iter(data))
    steps = 80
    for together in (1, 20):
        model = make_model("int64", together)
        step = tf.function(model.train_step)
        times: dict[str, list[float]] = {"step alone": [], "fit, one batch": [], "fit, loader": []}
        one = tf.data.Dataset.from_tensors((x, y)).repeat()
        for _ in range(4):
            alone = functools.partial(_repeat, step, (x, y), steps)
            times["step alone"].append(_seconds(model, alone))
            for name, batches in (("fit, one batch", one), ("fit, loader", data)):
                run = functools.partial(
                    model.fit, batches, steps_per_epoch=steps, verbose=0, shuffle=False
                )
                times[name].append(_seconds(model, run))
        for name, passed in times.items():
            ratios = [a / b for a, b in zip(times["step alone"], passed, strict=True)]
            print(
                f"fit {batch_size:,}, {together} steps a call: {name:16}"
                f"{steps * batch_size / statistics.median(passed[1:]) / 1e6:7.2f} M/s"
                f"{statistics.median(ratios[1:]):7.2f}",
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


def race(files: list[Path], rounds: int, *, lists: bool) -> None:
    """Time epochs, all contestants in turn."""
    racers: dict[str, Epoch] = {"cuDF decode only (limit)": lambda: decode_only(files)}
    for batch_size in (65_536, 16_384):
        for shuffle in (True, False) if not lists else (True,):
            data = make_loader(files, batch_size, lists=lists, shuffle=shuffle)
            label = f"{batch_size:,}{', shuffled' if shuffle else ''}"
            racers[f"compiled loop {label}"] = GraphEpoch(data)
            racers[f"Python loop {label}"] = lambda data=data: python_epoch(data)  # type: ignore[misc]
    rows = pl.scan_parquet(files).select(pl.len()).collect().item()
    times: dict[str, list[float]] = {name: [] for name in racers}
    for number in range(rounds + 1):
        for name, epoch in racers.items():
            start = time.perf_counter()
            epoch()
            if number:
                times[name].append(time.perf_counter() - start)
    limit = next(iter(times.values()))
    print(f"\n{rows:,} rows{', three 10-hot lists' if lists else ''}, median of {rounds} rounds")
    for name, passed in times.items():
        ratio = statistics.median(most / each for each, most in zip(passed, limit, strict=True))
        print(f"{name:40}{rows / statistics.median(passed) / 1e6:8.1f} M/s{ratio:7.2f}", flush=True)


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="race,lists,fit")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    files = make_data(arguments.folder, arguments.rows, lists=False)
    if "race" in only:
        race(files, arguments.rounds, lists=False)
    if "fit" in only:
        fit(files, 65_536)
        fit_windowed(files, 65_536)
    if "lists" in only:
        race(
            make_data(arguments.folder, arguments.rows // 2, lists=True),
            arguments.rounds,
            lists=True,
        )


if __name__ == "__main__":
    main()
