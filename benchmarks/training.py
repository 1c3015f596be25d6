"""Training: our layers, optimizers and step against Keras' own, from memory and from files.

    python -m benchmarks.training mlp wide [--rounds 3] [--batch 16384] [--shrink 1]
    python -m benchmarks.training mlp wide --device gpu [--names "bfloat16|keras float32$"]
    python -m benchmarks.training files [--rows 2097152]
    python -m benchmarks.training files --device gpu --rows 40000000
    python -m benchmarks.training identity hashed --shrink 64 [--rows 262144] [--batch 16384]
    python -m benchmarks.training identity --device gpu [--rows 8000000]

mlp: an MLP of Criteo's shape: 13 numbers, 26 embeddings of width 16 of 10 to a million ids, and dense
layers, three of them on a CPU, four of 1,024 on a GPU. wide: Wide & Deep of 10 numbers and 40
categorical columns, three of them 10-hot, against an embedding for each column and sparse tensors.
Both train on batches in memory. The line of matrix products is the floor: those of the model's dense
layers, and nothing else.

files: the MLP by `model.fit` from parquet and from TFRecord, rows per second and bytes on disk, and
from one batch that stays in memory, or on the GPU. TensorFlow's windowed loader reads records of
`tf.train.Example`, one a row; prebatched records hold the bytes of whole batches, which are only as
good as the shuffle that was made when they were written.

identity, hashed: Wide & Deep from parquet by our loader, as TensorFlow 2.7 measured it, with SGD:
batch 131,072, and 9.1 GB of tables, of which `--shrink 64` makes a 64th. identity: the columns hold
ids. hashed: the columns hold other integers; feature columns hash them within the model at each step,
ours once, in the workflow that writes the training data, whose time is a line of its own. Source:
"Improved TensorFlow 2.7 Operations for Faster Recommenders with NVIDIA", TensorFlow's blog, 2022.

All models of a table start from equal weights, and those on batches in memory train on the same, so that
losses after equal steps can be compared: in float32 with optimizers of the same rule they are the same
but for rounding. Our lazy Adam has a rule of its own, since it leaves rows alone that no batch names.
Ratios are to the first of a table; on a CPU, where all take turns, within a round.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from benchmarks import data, feeds, fitting, models
from benchmarks.fitting import Fit
from benchmarks.measure import Contestant, options, show, timed, use
from benchmarks.models import CRITEO, SMALL, WIDE_AND_DEEP, Optimizer, Shape, Way
from training import optimizers
from workflow import Workflow, ops

# The rows of a batch on a CPU and on a GPU.
BATCHES = {
    "mlp": (16_384, 65_536),
    "wide": (16_384, 131_072),
    "files": (4_096, 65_536),
    "identity": (131_072, 131_072),
    "hashed": (131_072, 131_072),
}
FIRST, STEPS = 2, 10
# Keras' and ours.
OPTIMIZERS: dict[str, tuple[Optimizer, Optimizer]] = {
    name: (
        partial(getattr(keras.optimizers, name), rate),
        partial(getattr(optimizers, name), rate),
    )
    for name, rate in (("SGD", 0.05), ("Adagrad", 0.05), ("Adam", 0.001))
}
THEIR_SGD, OUR_SGD = OPTIMIZERS["SGD"]
HALF = {"precision": "bfloat16"}
# Spreads ids over 40 bits, as the integers that are hashed.
SPREAD = 2_654_435_761


def cpu_mlp(optimizer: str) -> list[Way]:
    """Keras and ours with one kind of optimizer."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [
        Way(f"Keras, {optimizer}", models.keras_mlp, theirs),
        Way(f"our layers, Keras' {optimizer}", models.our_mlp, theirs),
        Way(f"our layers, {optimizer} and step", models.our_mlp, ours, {}),
        Way("the same in bfloat16", models.our_mlp, ours, HALF),
    ]


def cpu_wide(optimizer: str) -> list[Way]:
    """Wide & Deep with an embedding for each column, and ours."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [
        Way(f"Wide & Deep, Keras, {optimizer}", models.naive_wide_and_deep, theirs),
        Way(f"Wide & Deep, ours, {optimizer}", models.our_wide_and_deep, ours, {}),
    ]


def gpu_mlp() -> list[Way]:
    """The most telling first."""
    keras_mlp, our_mlp = models.keras_mlp, models.our_mlp
    steps: dict[str, Any] = {"steps_per_execution": 32}
    many = HALF | steps
    return [
        Way("keras float32", keras_mlp, THEIR_SGD),
        Way("ours, bfloat16, 32 steps a call", our_mlp, OUR_SGD, many),
        Way("ours, bfloat16", our_mlp, OUR_SGD, HALF),
        Way("ours, bfloat16, 32 steps a call, AUC", our_mlp, OUR_SGD, many | {"metrics": ["auc"]}),
        Way("ours, bfloat16, 32 steps a call, Adagrad", our_mlp, OPTIMIZERS["Adagrad"][1], many),
        Way("ours, bfloat16, 32 steps a call, Adam", our_mlp, OPTIMIZERS["Adam"][1], many),
        Way("keras mixed_bfloat16", keras_mlp, THEIR_SGD, policy="mixed_bfloat16"),
        Way("ours, float32, 32 steps a call", our_mlp, OUR_SGD, steps),
        Way("ours, float16, 32 steps a call", our_mlp, OUR_SGD, {"precision": "float16"} | steps),
        Way("keras mixed_float16", keras_mlp, THEIR_SGD, policy="mixed_float16"),
        Way("keras float32, Adam", keras_mlp, OPTIMIZERS["Adam"][0]),
        Way("ours, Keras' step, float32", our_mlp, OUR_SGD),
    ]


def gpu_wide() -> list[Way]:
    """Feature columns against ours."""
    naive, ours = models.naive_wide_and_deep, models.our_wide_and_deep
    return [
        Way("naive float32", naive, THEIR_SGD),
        Way("ours, bfloat16, 16 steps a call", ours, OUR_SGD, HALF | {"steps_per_execution": 16}),
        Way("ours, float32", ours, OUR_SGD, {}),
        # Ours takes the same ids as before: the workflow has hashed them.
        Way("naive float32, hashed in the model", partial(naive, hashed=True), THEIR_SGD),
    ]


def steps_on_cpu(part: str, given: Namespace) -> None:
    """Print a table for each optimizer."""
    wide = replace(WIDE_AND_DEEP.shrunk(8), width=16)
    ways, shape = (cpu_mlp, CRITEO) if part == "mlp" else (cpu_wide, wide)
    shape = replace(shape.shrunk(given.shrink), hidden=SMALL)
    batches = feeds.resident(shape, given.batch, "int32")
    for optimizer in OPTIMIZERS:
        racers: list[Contestant] = [
            Fit(way.name, way.model(shape, "int32"), batches, given.batch, STEPS, first=FIRST)
            for way in ways(optimizer)
            if re.search(given.names, way.name)
        ]
        if part == "mlp" and optimizer == "SGD":
            racers.append(products(shape, given.batch))
        title = f"batch {given.batch:,}, medians of {given.rounds} rounds of {STEPS} steps"
        show(title, fitting.measure(racers, given))


def steps_on_gpu(part: str, given: Namespace) -> None:
    """Print a table."""
    ways, shape, together = gpu_mlp(), CRITEO, 32
    if part == "wide":
        ways, shape, together = gpu_wide(), WIDE_AND_DEEP, 16
    shape = shape.shrunk(given.shrink)
    feed = feeds.resident(shape, given.batch, "int64")

    def fits() -> Iterator[Fit]:
        counts = {"steps": 8 * together, "first": together, "warm_up": together}
        for way in ways:
            if re.search(given.names, way.name):
                try:
                    racer = Fit(way.name, way.model(shape, "int64"), feed, given.batch, **counts)
                except (tf.errors.OpError, ValueError) as error:  # such as XLA's, by its flags
                    print(f"{way.name} failed: {str(error)[:300]}", flush=True)
                else:
                    yield racer

    title = f"{part}: batch {given.batch:,}; the first steps are {together}"
    show(title, fitting.measure(fits(), given))


def products(shape: Shape, batch: int) -> Contestant:
    """The matrix products of a multi-layer perceptron, forward and backward, and nothing else.

    No training step on a CPU can go below. Without biases, activations, lookups and updates; by
    TensorFlow's kernels (oneDNN), in float32.
    """
    width = len(shape.numbers) + len(shape.scalars) * shape.width
    sizes = itertools.pairwise([width, *shape.hidden, 1])
    kernels = [tf.random.normal(size) for size in sizes]
    x = tf.random.normal((batch, width))

    @tf.function(autograph=False)
    def multiply() -> list[tf.Tensor]:
        taken = [x]
        for kernel in kernels:
            taken.append(tf.matmul(taken[-1], kernel))
        upstream, found = taken.pop(), []
        for kernel in reversed(kernels):
            found.append(tf.matmul(taken.pop(), upstream, transpose_a=True))
            upstream = tf.matmul(upstream, kernel, transpose_b=True)
        return [*found, upstream]

    def work() -> int:
        for _ in range(STEPS):
            multiply()
        return batch * STEPS

    multiply()  # traces
    return Contestant("floor: matrix products alone", partial(timed, work), batch * STEPS)


def cpu_feeds(files: list[Path], sample: Path, records: Path, batch: int) -> Iterator[Fit]:
    """The feeds of a CPU; the first is what the others are compared with."""

    def fit(name: str, batches: Any) -> Fit:
        way = Way("", models.our_mlp, optimizers.Adagrad, {})
        model = way.model(replace(CRITEO, hidden=(128, 64)), "int32")
        return Fit(name, model, batches, batch, 48, first=4, warm_up=4)

    yield fit("TFRecord, windowed", feeds.windowed(sample, batch, epochs=None))
    shuffled = feeds.endless(feeds.prebatched(records, shuffle=True), batch)
    yield fit("TFRecord, prebatched, window of 16", shuffled)
    ours = feeds.open_loader(files, batch, drop_last=True, device="cpu")
    yield fit("ours, from parquet, shuffled", ours.repeat())
    yield fit("a batch in memory", feeds.repeated([ours.peek()]))


def gpu_feeds(files: list[Path], sample: Path, records: Path, batch: int) -> Iterator[Fit]:
    """The feeds of a GPU; the most telling come next to the first."""

    def split(name: str, batches: Any, **options: Any) -> Fit:
        options |= {"steps_per_execution": 32}
        model = Way("", models.our_mlp, OUR_SGD, options).model(CRITEO, "int32")
        return Fit(name, model, batches, batch, 448, first=32, warm_up=32)

    def theirs(name: str, batches: Any, steps: int, policy: str = "float32") -> Fit:
        model = Way("", models.keras_mlp, THEIR_SGD, policy=policy).model(CRITEO, "int64")
        return Fit(name, model, batches, batch, steps, first=1, warm_up=2)

    def ours() -> Any:
        return feeds.open_loader(files, batch, drop_last=True)

    examples = feeds.windowed(sample, batch, epochs=None, threads=os.cpu_count() or 1)
    yield theirs("TFRecord, windowed; Keras, float32", examples, 6)
    yield split("parquet, ours; split, bfloat16", ours(), **HALF)
    yield split("resident; split, bfloat16", feeds.resident(CRITEO, batch, "int32"), **HALF)
    yield split("parquet, ours; split, float32", ours())
    yield theirs("TFRecord, windowed; Keras, mixed_float16", examples, 6, "mixed_float16")
    yield theirs("parquet, ours; Keras, float32", feeds.with_int64(ours()), 200)
    shuffled = feeds.endless(feeds.with_int64(feeds.prebatched(records, shuffle=True)), batch)
    yield theirs("TFRecord, prebatched; Keras, float32", shuffled, 60)


def from_files(given: Namespace) -> None:
    """Print a line for each feed."""
    files = data.clicks(given.folder, given.rows, device=given.device)
    sample, sampled = feeds.make_tfrecord(given.folder, files)
    some = files[:1] if given.device == "gpu" else files
    records = feeds.make_prebatched(given.folder, some, given.batch)
    sizes = {
        "windowed": sample.stat().st_size / sampled,
        "prebatched": records.stat().st_size / (given.rows * len(some) / len(files)),
        "parquet": sum(file.stat().st_size for file in files) / given.rows,
    }
    fits = gpu_feeds if given.device == "gpu" else cpu_feeds
    lines = fitting.measure(fits(files, sample, records, given.batch), given)

    def size_of(name: str) -> Any:
        return next((round(size) for kind, size in sizes.items() if kind in name), "")

    table = (line | {"bytes a row": size_of(line[""])} for line in lines)
    show(f"model.fit fed from disk, batch {given.batch:,}", table)


def draw_with_integers(shape: Shape, count: int, random: np.random.Generator) -> pl.DataFrame:
    """Rows of a shape, with integers to hash beside each column of ids."""
    raw = pl.element() * SPREAD
    return data.shaped_clicks(shape, count, random).with_columns(
        *((pl.col(name) * SPREAD).alias(f"{name}_raw") for name in shape.scalars),
        *(pl.col(name).list.eval(raw).alias(f"{name}_raw") for name in shape.multi),
    )


def hashing(shape: Shape) -> Workflow:
    """The workflow that hashes each column into the rows of its table."""
    sizes = {f"{name}_raw": rows for name, rows in {**shape.scalars, **shape.multi}.items()}
    ids = [*sizes] >> ops.HashBucket(sizes)
    named = ids >> ops.Rename(lambda name: name.removesuffix("_raw"))
    return Workflow(named + [*shape.numbers, "label"])


def hash_files(files: list[Path], shape: Shape, given: Namespace) -> Path:
    """Write the files with hashed integers as ids, and print how fast."""
    start = time.perf_counter()
    folder = given.folder / f"{files[0].stem}_hashed"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    hashing(shape).fit_transform_to_parquet([*files], folder, engine="cpu")
    rate = given.rows / (time.perf_counter() - start)
    print(f"the workflow hashed {given.rows:,} rows once, at {rate:,.0f} rows/s")
    return Path(folder)


def wide_from_files(part: str, given: Namespace) -> None:
    """Print a line for feature columns and for ours, each trained on whole epochs."""
    shape, batch = WIDE_AND_DEEP.shrunk(given.shrink), given.batch
    draw, group = partial(draw_with_integers, shape), min(given.rows // 4, 500_000) or 1
    name = f"wide_and_deep_{given.shrink}"
    files = data.write_files(given.folder, name, given.rows, draw, row_group=group)
    hashed = hash_files(files, shape, given) if part == "hashed" else None
    naive = partial(models.naive_wide_and_deep, hashed=part == "hashed")
    ways = [
        Way(f"feature columns, {part}", naive, THEIR_SGD),
        Way(f"ours, {part}", models.our_wide_and_deep, OUR_SGD, {}),
    ]
    if given.device == "gpu":
        half = HALF | {"steps_per_execution": 4}
        name = f"ours, {part}, bfloat16, 4 steps a call"
        ways.append(Way(name, models.our_wide_and_deep, OUR_SGD, half))

    def fits() -> Iterator[Fit]:
        for way in ways:
            loader = feeds.open_loader(
                [hashed] if hashed and way.name.startswith("ours") else files,
                batch,
                cat_names=[*shape.scalars, *shape.multi],
                cont_names=shape.numbers,
                drop_last=True,
                device="cpu" if given.device == "cpu" else "gpu:0",  # never the CPU without cuDF
            )
            # Of the epoch: a run that finds fewer rows than these fails.
            steps = len(loader) // 4 * 4
            if not steps:
                raise SystemExit(
                    f"Expected rows for 4 batches of {batch:,} or more. Received: {given.rows:,}. "
                    "Give it more (--rows), or a smaller --batch."
                )
            batches = feeds.with_int64(loader)
            yield Fit(way.name, way.model(shape, "int64"), batches, batch, steps, warm_up=4)
            if given.device == "gpu":
                loader.close()

    tables = sum((*shape.cardinalities, *shape.lists)) * (shape.width + 1) * 4 / 1e9
    title = f"{part}: batch {batch:,}, SGD, {tables:.2f} GB of tables"
    show(title, fitting.measure(fits(), given))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options(__doc__, devices=True, files=True, rows=2_097_152, rounds=3, shrink=1)
    parser.add_argument(
        "parts", nargs="+", choices=BATCHES, metavar="part", help=", ".join(BATCHES)
    )
    parser.add_argument("--batch", type=int, help=f"default, on a CPU and a GPU: {BATCHES}")
    parser.add_argument("--names", default="", help="a pattern of the names of mlp and wide")
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    on_gpu = parsed.device == "gpu"
    steps: Callable[[str, Namespace], None] = steps_on_gpu if on_gpu else steps_on_cpu
    for part in parsed.parts:
        given = Namespace(**vars(parsed) | {"batch": parsed.batch or BATCHES[part][on_gpu]})
        if part == "files":
            from_files(given)
        elif part in {"mlp", "wide"}:
            steps(part, given)
        else:
            wide_from_files(part, given)


if __name__ == "__main__":
    main()
