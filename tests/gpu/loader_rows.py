"""Rows of every kind of column that the loader carries on a GPU, and how batches are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import tensorflow as tf

from loader import ArrayLoader

SETTINGS = {
    "label_names": ["label"],
    "cat_names": ["id", "long", "genres", "tags", "byte", "flag"],
    "cont_names": ["price", "exact"],
    "sparse_names": ["tags"],
    "sparse_max": {"tags": 5},
    "sparse_as_dense": True,
}
ROWS = 100_003


def make_frame():
    random = np.random.default_rng(1)
    price = pl.Series(random.standard_normal(ROWS).astype(np.float32))
    lengths = random.integers(0, 6, ROWS)
    columns = {
        "byte": random.integers(-128, 128, ROWS).astype(np.int8),
        "id": random.integers(-(2**31), 2**31, ROWS).astype(np.int32),
        "long": random.integers(-(2**63), 2**63 - 1, ROWS),
        "price": price.set(pl.Series(random.random(ROWS) < 0.1), None),
        "exact": random.standard_normal(ROWS),
        "flag": random.random(ROWS) < 0.5,
        "label": random.integers(0, 2, ROWS).astype(np.int32),
    }
    for name, dtype in (("genres", pl.Int32), ("tags", pl.Int64)):
        values = pl.Series(random.integers(0, 2**31 - 1, int(lengths.sum())), dtype=dtype)
        ends = np.cumsum(lengths)
        lists = [values[end - n : end] if n else None for end, n in zip(ends, lengths, strict=True)]
        columns[name] = pl.Series(lists, dtype=pl.List(dtype))
    return pl.DataFrame(columns)


def assert_same_batches(received, expected):
    """The same structure, dtypes and values, of a batch or of a list of them."""
    tf.nest.assert_same_structure(received, expected, expand_composites=True)
    both = (tf.nest.flatten(each, expand_composites=True) for each in (received, expected))
    for ours, theirs in zip(*both, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def framework_loader(loader, folder, device):
    """Makes loaders of another framework; small blocks, so that the memory of the first ones is used
    again."""
    given = {**SETTINGS, "device": device, "shuffle": False, "buffer_size": 2_000_000}
    given.pop("sparse_as_dense")
    frame = make_frame()
    for number, part in enumerate((frame[:40_000], frame[40_000:])):
        part.write_parquet(folder / f"{number}.parquet", row_group_size=7_000)
    return partial(loader, folder, 4096, **given)


def arrays_of(make):
    """The same batches, read by the CPU as numpy arrays."""
    given = {name: value for name, value in make.keywords.items() if name != "device"}
    with ArrayLoader(*make.args, **given) as arrays:
        return list(arrays)


def flat(part):
    """All tensors of a batch, in its order."""
    if isinstance(part, dict):
        part = tuple(part.values())
    return [one for each in part for one in flat(each)] if isinstance(part, tuple) else [part]


@dataclass(frozen=True)
class Noting:
    """A loader's transport that notes the batches of which it makes tensors.

    Attributes:
        transport: makes them.
        batches: as it received them.
    """

    transport: Any
    batches: list[Any] = field(default_factory=list)

    def to_batch(self, batch):
        self.batches.append(batch)
        return self.transport.to_batch(batch)
