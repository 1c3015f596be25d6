"""`model.fit` fed from files, in the ways people go, beside the same steps on a batch in memory.

    python -m benchmarks.fit_from_files [--rows 2000000] [--rounds 3]
    python -m benchmarks.fit_from_files --device gpu --rows 40000000

One model from parquet and from TFRecord, rows per second and bytes on disk, and from one batch that stays
in memory, or on the GPU. TensorFlow's windowed loader reads records of `tf.train.Example`, one a row;
prebatched records hold the bytes of whole batches, which are only as good as the shuffle that was made
when they were written. Ratios are to the windowed loader.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras

from benchmarks import data, models, resident
from benchmarks.feeds import (
    endless,
    make_prebatched,
    make_tfrecord,
    open_loader,
    prebatched,
    windowed,
    with_int64,
)
from benchmarks.fitting import Fit, row
from benchmarks.measure import options, race, show, use
from benchmarks.models import CRITEO, Way
from training import optimizers


def cpu_feeds(files: list[Path], sample: Path, records: Path, batch: int) -> Iterator[Fit]:
    """The feeds of a CPU, which take turns; the first is what the others are compared with."""

    def fit(name: str, batches: Any) -> Fit:
        way = Way("", models.our_mlp, optimizers.Adagrad, {})
        model = way.model(replace(CRITEO, hidden=(128, 64)), "int32")
        return Fit(name, model, batches, batch, 48, first=4, warm_up=4)

    yield fit("TFRecord, windowed", windowed(sample, batch, epochs=None))
    shuffled = endless(prebatched(records, shuffle=True), batch)
    yield fit("TFRecord, prebatched, window of 16", shuffled)
    ours = open_loader(files, batch, drop_last=True, device="cpu")
    yield fit("ours, from parquet, shuffled", ours.repeat())
    yield fit("a batch in memory", resident.repeated([ours.peek()]))


def gpu_feeds(files: list[Path], sample: Path, records: Path, batch: int) -> Iterator[Fit]:
    """The feeds of a GPU, each made after the one before; the most telling come next to the first."""

    def split(name: str, batches: Any, **options: Any) -> Fit:
        options |= {"steps_per_execution": 32}
        way = Way("", models.our_mlp, partial(optimizers.SGD, 0.05), options)
        model = way.model(CRITEO, "int32")
        return Fit(name, model, batches, batch, 448, first=32, warm_up=32)

    def theirs(name: str, batches: Any, steps: int, policy: str = "float32") -> Fit:
        way = Way("", models.keras_mlp, partial(keras.optimizers.SGD, 0.05), policy=policy)
        return Fit(name, way.model(CRITEO, "int64"), batches, batch, steps, first=1, warm_up=2)

    def ours() -> Any:
        return open_loader(files, batch, drop_last=True)

    examples = windowed(sample, batch, epochs=None, threads=os.cpu_count() or 1)
    yield theirs("TFRecord, windowed; Keras, float32", examples, 6)
    yield split("parquet, ours; split, bfloat16", ours(), precision="bfloat16")
    held = resident.repeated(resident.batches(CRITEO, batch, "int32"))
    yield split("resident; split, bfloat16", held, precision="bfloat16")
    yield split("parquet, ours; split, float32", ours())
    yield theirs("TFRecord, windowed; Keras, mixed_float16", examples, 6, "mixed_float16")
    yield theirs("parquet, ours; Keras, float32", with_int64(ours()), 200)
    held = resident.repeated(resident.batches(CRITEO, batch, "int64"))
    yield theirs("resident; Keras, float32", held, 200)
    shuffled = endless(with_int64(prebatched(records, shuffle=True)), batch)
    yield theirs("TFRecord, prebatched; Keras, float32", shuffled, 60)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each way; on a GPU one after the other, on a CPU they take turns."""
    parser = options(__doc__, devices=True, files=True, rows=2_000_000, rounds=3)
    parser.add_argument("--batch", type=int, help="4,096 on a CPU, 65,536 on a GPU")
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    on_gpu, folder, rows = parsed.device == "gpu", parsed.folder, parsed.rows
    batch = parsed.batch or (65_536 if on_gpu else 4_096)
    files = data.clicks(folder, rows, device=parsed.device)
    sample, sampled = make_tfrecord(folder, files)
    of = files[:1] if on_gpu else files
    records = make_prebatched(folder, of, batch)
    sizes = {
        "windowed": sample.stat().st_size / sampled,
        "prebatched": records.stat().st_size / (rows * len(of) / len(files)),
        "parquet": sum(file.stat().st_size for file in files) / rows,
    }
    racers = []
    for racer in (gpu_feeds if on_gpu else cpu_feeds)(files, sample, records, batch):
        racers.append(racer)
        if on_gpu:
            race([racer], 1)
            print(f"{racer.name}: {racer.rate / 1e6:.3f} M samples/s", flush=True)
            keras.backend.clear_session()
    if not on_gpu:
        race(racers, parsed.rounds)
    table = []
    for racer in racers:
        size = next((round(size) for kind, size in sizes.items() if kind in racer.name), "")
        table.append(row(racer, racers[0], batch) | {"bytes a row": size})
    show(f"model.fit fed from disk, batch {batch:,}", table)


if __name__ == "__main__":
    main()
