"""`model.fit` fed from files: beside the same steps on a batch in memory, and in the ways people go.

    python -m benchmarks.fit_from_files [--only resident feeds] [--rows 2000000] [--rounds 3]
    python -m benchmarks.fit_from_files --device gpu --rows 40000000

resident: whole epochs fed by the loader, so that each row decoded is a row trained on, against the
same steps on one batch that stays in memory, or on the GPU. On a CPU a light model, whose step leaves
a loader little to hide behind, and the Criteo-like MLP; where the time goes is told by the processor
time of threads, by what they belong to: those that end with an epoch are the loader's own. With
`_RJEM_MALLOC_CONF=dirty_decay_ms:-1` in the environment Polars keeps the memory it has had. On a GPU
the MLP of `benchmarks.training_step`.

feeds: one model from parquet and from TFRecord, rows per second and bytes on disk. TensorFlow's
windowed loader reads records of `tf.train.Example`, one a row; prebatched records hold the bytes of
whole batches, which are only as good as the shuffle that was made when they were written. Ratios are
to the windowed loader.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks import data, models, resident
from benchmarks.data import CATS, CONTS, cardinalities
from benchmarks.feeds import (
    endless,
    make_prebatched,
    make_tfrecord,
    open_loader,
    prebatched,
    wait,
    windowed,
    with_int64,
)
from benchmarks.fitting import Fit
from benchmarks.measure import Contestant, Taken, options, race, show, timed, use
from benchmarks.models import CRITEO, Way
from training import compile_model, optimizers
from training.models import mlp

BATCHES = {"cpu": 16_384, "gpu": 65_536}
# Of the step alone, and of a run of feeds on a CPU.
STEPS, CPU_STEPS = 100, 48
# The beginnings of threads' names; the first that fits counts.
OWNERS = {
    "memory": ("jemalloc", "polars-unmap"),
    "decoding": ("polars-", "async-execut", "tokio"),
}
TICKS = os.sysconf("SC_CLK_TCK")


def light_model() -> keras.Model:
    """A small click model: one embedding table for all columns and three dense layers."""
    inputs = {name: keras.Input((1,), name=name, dtype="float32") for name in CONTS}
    inputs |= {name: keras.Input((1,), name=name, dtype="int32") for name in CATS}
    ids = keras.layers.concatenate([inputs[name] for name in CATS]) % 10_000
    embedded = keras.layers.Flatten()(keras.layers.Embedding(10_000, 8)(ids))
    hidden = keras.layers.concatenate([embedded, *(inputs[name] for name in CONTS)])
    for _ in range(3):
        hidden = keras.layers.Dense(128, "relu")(hidden)
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))


def criteo_model() -> keras.Model:
    """26 embeddings of width 16 with up to a million rows, and three dense layers."""
    return models.keras_mlp(replace(CRITEO, hidden=(256, 128, 64)), "int32")


def processor_time() -> Counter[str]:
    """Milliseconds of this process's threads, user and system, by what they belong to."""
    found: Counter[str] = Counter()
    for thread in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        fields = rest.split()
        found[owner_of(name)] += (int(fields[11]) + int(fields[12])) * 1000 // TICKS
    return found


def owner_of(thread: str) -> str:
    """The owner of a thread with some name.

    Example:
        >>> owner_of("tokio-rt-worker"), owner_of("python")
        ('decoding', 'training')
    """
    return next((who for who, names in OWNERS.items() if thread.startswith(names)), "training")


class Owned(Fit):
    """A fit that keeps the processor time of each run by what its threads belong to."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.work: list[Counter[str]] = []
        super().__init__(*arguments, **options)

    def _run(self) -> Taken:
        before = processor_time()
        taken = super()._run()
        work = processor_time() - before
        # The loader's own threads have ended with the epoch.
        work["loader"] = max(round(taken.processor * 1000) - work.total(), 0)
        self.work.append(work)
        return taken


def resident_on_cpu(files: list[Path], batch: int, rounds: int) -> None:
    """Print how much longer an epoch takes than its steps, and whose time that is."""
    table = []
    for name, build in (("light model", light_model), ("Criteo-like MLP", criteo_model)):
        loader = open_loader(files, batch, drop_last=True, device="cpu")
        model, steps = build(), len(loader)
        model.compile(keras.optimizers.SGD(0.05), "binary_crossentropy", jit_compile=False)
        one = tf.data.Dataset.from_tensors(loader.peek()).repeat()
        alone, fed = (Owned(name, model, x, batch, steps, warm_up=2) for x in (one, loader))
        race([alone, fed], rounds)
        table.append(
            {
                "": name,
                "ms a step, in memory": alone.seconds / steps * 1e3,
                "speed fed by the loader": fed.against(alone).median,
                "by processor time": fed.against(alone, "processor").median,
            }
            | {
                f"{owner}, ms": statistics.mean(each[owner] for each in fed.work) / steps
                for owner in ("training", *OWNERS, "loader")
            }
        )
    show(f"model.fit, batch {batch:,}, whole epochs, {rounds} rounds", table)


def resident_on_gpu(files: list[Path], batch: int, rounds: int) -> None:
    """Print epochs fed by the loader beside those on one batch, by the steps of a call."""
    loader = open_loader(files, batch, drop_last=True)
    feed = with_int64(loader)
    one = next(iter(feed))
    for together in (1, 20):
        steps = len(loader) // together * together
        model = models.keras_mlp(CRITEO, "int64")
        sgd = keras.optimizers.SGD(0.01)
        model.compile(sgd, "binary_crossentropy", jit_compile=False, steps_per_execution=together)
        fits = {
            "fit, resident": resident.Resident([one]),
            "fit, loader": feed,
        }
        racers: list[Contestant] = [
            Fit(name, model, batches, batch, steps, warm_up=together)
            for name, batches in fits.items()
        ]
        racers.append(step_alone(model, one, batch))
        race(racers, rounds)
        show(
            f"model.fit, batch {batch:,}, {together} steps a call, whole epochs",
            [
                {"": r.name, "M rows/s": r.rate / 1e6, "of resident": r.against(racers[0]).median}
                for r in racers
            ],
        )


def step_alone(model: keras.Model, one: Any, batch: int) -> Contestant:
    """The model's step on a batch, called without `fit`."""
    step = tf.function(model.train_step)

    def work() -> int:
        for _ in range(STEPS):
            step(one)
        wait(model.trainable_variables[-1])
        return batch * STEPS

    step(one)  # traces
    return Contestant("step alone", partial(timed, work), batch * STEPS)


@dataclass(frozen=True)
class Files:
    """The rows in three formats.

    Attributes:
        parquet: the files.
        sample: `tf.train.Example`, of some of the rows.
        prebatched: batches as records.
        bytes_per_row: format -> on disk.
    """

    parquet: list[Path]
    sample: Path
    prebatched: Path
    bytes_per_row: dict[str, float]


def write_formats(folder: Path, files: list[Path], rows: int, batch: int, *, few: bool) -> Files:
    """Write the other formats; `few` makes records of the first parquet file alone."""
    sample, sampled = make_tfrecord(folder, files)
    of = files[:1] if few else files
    records = make_prebatched(folder, of, batch)
    sizes = {
        "tf.train.Example": sample.stat().st_size / sampled,
        "prebatched": records.stat().st_size / (rows * len(of) / len(files)),
        "parquet": sum(file.stat().st_size for file in files) / rows,
    }
    return Files(files, sample, records, sizes)


def cpu_feeds(files: Files, batch: int) -> Iterator[tuple[str, Fit]]:
    """Fits, each with the format of its files; the first is what the others are compared with."""
    sizes = {name: (size, 16) for name, size in cardinalities(1_000_000).items()}

    def fit(name: str, batches: Any) -> Fit:
        model = mlp(sizes, CONTS, hidden=(128, 64))
        compile_model(model, "adagrad")
        return Fit(name, model, batches, batch, CPU_STEPS, first=4, warm_up=4)

    examples = windowed(files.sample, batch, epochs=None)
    yield "tf.train.Example", fit("TFRecord, windowed", examples)
    records = endless(prebatched(files.prebatched, shuffle=True), batch)
    yield "prebatched", fit("TFRecord, prebatched, window of 16", records)
    ours = open_loader(files.parquet, batch, drop_last=True, device="cpu").repeat()
    yield "parquet", fit("ours, from parquet, shuffled", ours)


def gpu_feeds(files: Files, batch: int) -> Iterator[tuple[str, Fit]]:
    """The feeds of a GPU, each made after the one before; the most telling come next to the first."""

    def split(name: str, **options: Any) -> Fit:
        options |= {"steps_per_execution": 32}
        way = Way("", models.our_mlp, partial(optimizers.SGD, 0.05), options)
        model = way.model(CRITEO, "int32")
        return Fit(name, model, ours(), batch, 448, first=32, warm_up=32)

    def theirs(name: str, batches: Any, steps: int, policy: str = "float32") -> Fit:
        way = Way("", models.keras_mlp, partial(keras.optimizers.SGD, 0.05), policy=policy)
        return Fit(name, way.model(CRITEO, "int64"), batches, batch, steps, first=1, warm_up=2)

    def ours() -> Any:
        return open_loader(files.parquet, batch, drop_last=True)

    cores = os.cpu_count() or 1
    examples = windowed(files.sample, batch, epochs=None, threads=cores)
    records = prebatched(files.prebatched, shuffle=True)
    example, names = "tf.train.Example", ("TFRecord, windowed; Keras,", "parquet, ours;")
    yield example, theirs(f"{names[0]} float32", examples, 6)
    yield "parquet", split(f"{names[1]} split, bfloat16", precision="bfloat16")
    yield "parquet", split(f"{names[1]} split, float32")
    yield example, theirs(f"{names[0]} mixed_float16", examples, 6, "mixed_float16")
    yield "parquet", theirs(f"{names[1]} Keras, float32", with_int64(ours()), 200)
    endless_records = endless(with_int64(records), batch)
    yield "prebatched", theirs("TFRecord, prebatched; Keras, float32", endless_records, 60)


def race_feeds(
    feeds: Iterable[tuple[str, Fit]], files: Files, batch: int, parsed: argparse.Namespace
) -> None:
    """Print a line for each way; on a GPU one after the other, on a CPU they take turns."""
    racers, sizes = [], []
    for kind, racer in feeds:
        racers.append(racer)
        sizes.append(round(files.bytes_per_row[kind]))
        if parsed.device == "gpu":
            race([racer], 1)
            print(f"{racer.name}: {racer.rate / 1e6:.3f} M samples/s", flush=True)
            keras.backend.clear_session()
    if parsed.device == "cpu":
        race(racers, parsed.rounds)
    rows = [
        {
            "": racer.name,
            "samples/s": racer.rate,
            "ratio": f"{racer.against(racers[0]).median:.2f}x",
            "processor": f"{racer.against(racers[0], 'processor').median:.2f}x",
            "bytes a row": size,
        }
        for racer, size in zip(racers, sizes, strict=True)
    ]
    show(f"model.fit fed from disk, batch {batch:,}", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parts = ("resident", "feeds")
    parser = options(
        __doc__, devices=True, rows=2_000_000, rounds=3, folder=Path("build/benchmarks")
    )
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--batch", type=int, help="16,384 and 4,096 on a CPU, 65,536 on a GPU")
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    files = data.clicks(parsed.folder, parsed.rows, device=parsed.device)
    if "resident" in parsed.only:
        measure = resident_on_gpu if parsed.device == "gpu" else resident_on_cpu
        measure(files, parsed.batch or BATCHES[parsed.device], parsed.rounds)
    if "feeds" in parsed.only:
        on_gpu = parsed.device == "gpu"
        batch = parsed.batch or (65_536 if on_gpu else 4096)
        formats = write_formats(parsed.folder, files, parsed.rows, batch, few=on_gpu)
        feeds = (gpu_feeds if on_gpu else cpu_feeds)(formats, batch)
        race_feeds(feeds, formats, batch, parsed)


if __name__ == "__main__":
    main()
