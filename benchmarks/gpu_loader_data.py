"""The data of the GPU loader's benchmarks: Criteo-like, with lists if need be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tensorflow as tf

from loader import KerasSequenceLoader

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
LISTS = ["L1", "L2", "L3"]
CARDINALITIES = np.geomspace(10, 1_000_000, len(CATS)).astype(int)
FILES = 8
ROW_GROUP = 1_000_000
FOLDER = Path("/tmp/gpu_loader")  # noqa: S108 - a machine for one run


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


def python_epoch(data: Any) -> tuple[int, int]:
    """A Python loop over batches of eager tensors."""
    rows = batches = 0
    for _, y in data:
        rows += y.shape[0]
        batches += 1
    wait(y)
    return rows, batches


def wait(tensor: Any) -> None:
    """Wait for the GPU."""
    tf.reshape(tf.cast(tensor, tf.float32), [-1])[:1].numpy()


def as_int64(tensor: tf.Tensor) -> tf.Tensor:
    """Ids as int64, which Keras' own layers leave on the GPU; int32 they move through the host."""
    return tf.cast(tensor, tf.int64) if tensor.dtype == tf.int32 else tensor
