"""Wide & Deep as TensorFlow 2.7 measured it: 10 numbers, 40 columns of ids, three 10-hot; SGD.

    python -m benchmarks.wide_and_deep --shrink 64 [--rows 262144] [--batch 16384] [--rounds 3]
    python -m benchmarks.wide_and_deep --device gpu [--only identity] [--rows 8000000]

The data is generated, written as parquet and read by our loader for all. identity: the columns hold
ids. hashed: the columns hold other integers; feature columns hash them within the model at each step,
ours once, in the workflow that writes the training data, whose time is a line of its own. Feature
columns are those of `benchmarks.models`: an embedding for each column, sparse tensors of lists.

Source: "Improved TensorFlow 2.7 Operations for Faster Recommenders with NVIDIA", TensorFlow's blog,
2022: batch 131,072, and 9.1 GB of tables, of which `--shrink 64` makes a 64th. Ratios are to feature
columns in the same table.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import polars as pl

from benchmarks import models
from benchmarks.data import shaped_clicks, write_files
from benchmarks.feeds import open_loader, with_int64
from benchmarks.fitting import Fit, row
from benchmarks.measure import options, race, show, use
from benchmarks.models import WIDE_AND_DEEP, Shape, Way
from training import optimizers
from workflow import Workflow, ops

# Spreads ids over 40 bits, as the integers that are hashed.
SPREAD = 2_654_435_761
LEARNING_RATE = 0.05


def drawn(shape: Shape, count: int, random: np.random.Generator) -> pl.DataFrame:
    """Rows of a shape, with integers to hash beside each column of ids."""
    raw = pl.element() * SPREAD
    return shaped_clicks(shape, count, random).with_columns(
        *((pl.col(name) * SPREAD).alias(f"{name}_raw") for name in shape.scalars),
        *(pl.col(name).list.eval(raw).alias(f"{name}_raw") for name in shape.multi),
    )


def hashing(shape: Shape) -> Workflow:
    """The workflow that hashes each column into the rows of its table."""
    sizes = {f"{name}_raw": rows for name, rows in {**shape.scalars, **shape.multi}.items()}
    ids = [*sizes] >> ops.HashBucket(sizes)
    named = ids >> ops.Rename(lambda name: name.removesuffix("_raw"))
    return Workflow(named + [*shape.numbers, "label"])


def ways(device: str, kind: str) -> Iterator[Way]:
    """Feature columns and ours; the first is what the others are compared with."""
    theirs = partial(keras.optimizers.SGD, LEARNING_RATE)
    own = partial(optimizers.SGD, LEARNING_RATE)
    naive = partial(models.naive_wide_and_deep, hashed=kind == "hashed")
    yield Way(f"feature columns, {kind}", naive, theirs)
    yield Way(f"ours, {kind}", models.our_wide_and_deep, own, {})
    if device == "gpu":
        half = {"precision": "bfloat16", "steps_per_execution": 4}
        yield Way(f"ours, {kind}, bfloat16, 4 steps a call", models.our_wide_and_deep, own, half)


def measure(
    kind: str, shape: Shape, files: dict[str, Any], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train each way on whole epochs, in turns."""
    batch, device = arguments.batch, arguments.device
    racers = []
    for way in ways(device, kind):
        own = "hashed" if kind == "hashed" and way.name.startswith("ours") else "identity"
        loader = open_loader(
            files[own],
            batch,
            cat_names=[*shape.scalars, *shape.multi],
            cont_names=shape.numbers,
            drop_last=True,
            device="cpu" if device == "cpu" else "gpu:0",  # and never the CPU for want of cuDF
        )
        # Of the epoch: a run that finds fewer rows than these fails.
        steps = len(loader) // 4 * 4
        if not steps:
            raise SystemExit(
                f"Expected rows for 4 batches of {batch:,} or more. Received: {arguments.rows:,}. "
                "Give it more (--rows), or a smaller --batch."
            )
        data = with_int64(loader)
        racers.append(Fit(way.name, way.model(shape, "int64"), data, batch, steps, warm_up=4))
        if device == "gpu":  # whose memory is too small for the tables of all
            race(racers[-1:], arguments.rounds)
            print(f"{way.name}: {racers[-1].seconds / steps * 1e3:.1f} ms a step", flush=True)
            racers[-1].release()
            loader.close()
    if device == "cpu":
        race(racers, arguments.rounds)
    return [row(racer, racers[0], batch) for racer in racers]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    kinds = ("identity", "hashed")
    sizes = {"rows": 2_097_152, "batch": 131_072, "rounds": 3, "shrink": 1}
    parser = options(__doc__, devices=True, files=True, **sizes)
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parsed = parser.parse_args(arguments)
    use(parsed.device)
    shape = WIDE_AND_DEEP.shrunk(parsed.shrink)
    name = f"wide_and_deep_{parsed.shrink}"
    group = min(parsed.rows // 4, 500_000) or 1
    files: dict[str, Any] = {
        "identity": write_files(
            parsed.folder, name, parsed.rows, partial(drawn, shape), row_group=group
        )
    }
    if "hashed" in parsed.only:
        start = time.perf_counter()
        folder = parsed.folder / f"{name}_{parsed.rows}_hashed"
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
        hashing(shape).fit_transform_to_parquet(files["identity"], folder, engine="cpu")
        rate = parsed.rows / (time.perf_counter() - start)
        print(f"the workflow hashed {parsed.rows:,} rows once, at {rate:,.0f} rows/s")
        files["hashed"] = [folder]
    tables = sum((*shape.cardinalities, *shape.lists)) * (shape.width + 1) * 4 / 1e9
    for kind in parsed.only:
        rows = measure(kind, shape, files, parsed)
        show(f"{kind}: batch {parsed.batch:,}, SGD, {tables:.2f} GB of tables", rows)


if __name__ == "__main__":
    main()
