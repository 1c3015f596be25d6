"""Tables of keys in parts by a hash of the key, which merge independently of each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from workflow.expressions.language.hashing import hash_strings, hash_values
from workflow.expressions.polars.series import to_strings
from workflow.schema.column import Array

# Differs from the seeds of buckets and combinations, so that their results are spread evenly too.
_SEED = 7_919


def hash_parts(table: pl.DataFrame, keys: Sequence[str], count: int) -> list[pl.DataFrame]:
    """The rows of a table in parts, all rows of a key in one.

    Polars' own hash may differ between its versions, and so between workers.

    Args:
        table: the table.
        keys: the names of its key columns: integers, booleans or strings, with nulls.
        count: the number of parts.

    Example:
        >>> table = pl.DataFrame({"key0": ["a", "b", "a", None]})
        >>> parts = hash_parts(table, ["key0"], 2)
        >>> sum(part.height for part in parts), max(part["key0"].n_unique() for part in parts) < 4
        (4, True)
    """
    bits = np.zeros(table.height, np.uint64)
    for number, key in enumerate(keys):
        bits += _hashes(table[key], _SEED + number).view(np.uint64)
    part = bits % np.uint64(count)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(count + 1, dtype=np.uint64)).tolist()
    ordered = table[order]
    return [ordered[start:end] for start, end in pairwise(ends)]


def _hashes(values: pl.Series, seed: int) -> Array:
    filled = values.fill_null(strategy="zero")
    if values.dtype == pl.String:
        return hash_strings(to_strings(filled), seed)
    return hash_values(filled.to_numpy(), seed)
