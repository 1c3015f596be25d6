"""Lookups: positions of values among keys, by the fastest structure for the keys.

Each is a `tf.Module`, so that `tf.saved_model.save` finds the table that it holds.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Step
from workflow.expressions.tables.lookup import direct_table
from workflow.schema.column import Array, Column, Strings
from workflow.schema.dtypes import DTYPES

from .column import Function, TensorColumn

# From this size on a file loads several times faster than constants of the graph.
LARGE_VOCABULARY = 100_000
BREAKS_LINES = (b"\n", b"\r")


def lookup(step: Step, types: Sequence[Type]) -> Function:
    """The function for a lookup step, by the fastest structure for its keys."""
    keys: Column = step.parameters["keys"]
    first, missing = step.parameters["first"], step.parameters["missing"]
    if isinstance(keys.values, Strings):
        return (
            Lookup(_string_table(keys.values, first, missing)) if keys.rows else _nowhere(missing)
        )
    whole, positions = _as_int64(keys.values, types[0].dtype)
    if len(whole) == 0:
        return _nowhere(missing)
    # As int64 the upper half of uint64 is negative, which is not a valid address.
    plain = len(whole) == keys.rows and (types[0].dtype != "uint64" or bool(np.all(whole >= 0)))
    direct = direct_table(whole, first, missing) if plain else None
    if direct is not None:
        return DirectLookup(*direct)
    return Lookup(IntegerTable(whole, positions + first, missing))


def _nowhere(missing: int) -> Function:
    """A lookup among no keys, for which TensorFlow has no table."""

    def find(column: TensorColumn) -> TensorColumn:
        results = tf.fill(tf.shape(column.values), tf.constant(missing, tf.int64))
        return TensorColumn(results, column.valid, column.lengths)

    return find


def _as_int64(keys: Array, dtype: str) -> tuple[Array, Array]:
    """The keys within a column's dtype, as int64 (uint64 by its bits), and their positions."""
    positions = np.arange(len(keys))
    if keys.dtype.kind != "b":
        limits, key_limits = np.iinfo(DTYPES[dtype].numpy), np.iinfo(keys.dtype)
        lower, upper = max(limits.min, key_limits.min), min(limits.max, key_limits.max)
        inside = (keys >= lower) & (keys <= upper)
        keys, positions = keys[inside], positions[inside]
    return keys.astype(np.int64), positions


def to_int64(values: Any) -> Any:
    """Integers or booleans as int64; the upper half of uint64 by its bits, as negative numbers."""
    if values.dtype == tf.int64:
        return values
    return tf.bitcast(values, tf.int64) if values.dtype == tf.uint64 else tf.cast(values, tf.int64)


class Lookup(tf.Module):  # type: ignore[misc]
    """Positions of values by a hash table.

    Args:
        table: maps a tensor of values to int64 results.
    """

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def __call__(self, column: TensorColumn) -> TensorColumn:
        """The result of each value."""
        return TensorColumn(self.table.lookup(column.values), column.valid, column.lengths)


class IntegerTable(tf.Module):  # type: ignore[misc]
    """A hash table of integers of any width.

    Args:
        keys: int64, shape (K,), distinct.
        results: int64, shape (K,).
        missing: the result for a value that is not a key.
    """

    def __init__(self, keys: Array, results: Array, missing: int) -> None:
        super().__init__()
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant(keys, tf.int64), tf.constant(results, tf.int64)
        )
        self.table = tf.lookup.StaticHashTable(initializer, missing)

    def lookup(self, values: Any) -> Any:
        """The results, int64."""
        return self.table.lookup(to_int64(values))


class DirectLookup(tf.Module):  # type: ignore[misc]
    """Positions of dense integers, by address.

    Args:
        table: int64, the result for each integer from `low` to `high`; the first and the last are
            the result for a value that is not a key.
        low: the integer of the table's first slot.
        high: the integer of its last slot.
    """

    def __init__(self, table: Array, low: int, high: int) -> None:
        super().__init__()
        if 0 < low <= len(table):
            # Slots from 0 on, if that is cheap: it saves a subtraction in each request.
            table, low = np.concatenate([np.full(low, table[0]), table]), 0
        self.table = tf.Variable(table, trainable=False, name="positions")
        self._low, self._high = low, high

    def __call__(self, column: TensorColumn) -> TensorColumn:
        """The result of each value."""
        slots = column.values
        if slots.dtype == tf.uint64:
            # Not by its bits: they would select the wrong end of a table that starts below 0.
            slots = tf.minimum(slots, np.uint64(2**63 - 1))
        slots = tf.cast(slots, tf.int64)
        slots = tf.raw_ops.ClipByValue(
            t=slots,
            clip_value_min=tf.constant(self._low, tf.int64),
            clip_value_max=tf.constant(self._high, tf.int64),
        )
        slots = slots if self._low == 0 else slots - self._low
        return TensorColumn(tf.gather(self.table, slots), column.valid, column.lengths)


def _string_table(keys: Strings, first: int, missing: int) -> Any:
    texts = [text.encode() for text in keys.to_objects()]
    if sum(not _cannot_be_a_line(text) for text in texts) >= LARGE_VOCABULARY:
        return FileTable(texts, first, missing)
    return _hash_table(texts, np.arange(first, first + len(texts)), missing)


def _hash_table(texts: Sequence[bytes], results: Array, missing: int) -> Any:
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant(texts, tf.string, [len(texts)]), tf.constant(results, tf.int64)
    )
    return tf.lookup.StaticHashTable(initializer, missing)


class FileTable(tf.Module):  # type: ignore[misc]
    """A hash table of many strings, which the SavedModel stores as an asset, one string a line.

    A text that cannot be a line, because it is empty or contains a newline, is in a second table.

    Args:
        texts: distinct strings, UTF-8.
        first: the result for the first string.
        missing: the result for any other string.
    """

    def __init__(self, texts: Sequence[bytes], first: int, missing: int) -> None:
        super().__init__()
        odd = [row for row, text in enumerate(texts) if _cannot_be_a_line(text)]
        lines = [text for text in texts if not _cannot_be_a_line(text)]
        self._first = first
        self.table = self._read(lines, -1 if odd else missing - first)
        # The lines before which a text was left out, once for each such text.
        self._gaps = np.array(odd) - np.arange(len(odd))
        rest = [texts[row] for row in odd]
        self.odd = _hash_table(rest, np.array(odd) + first, missing) if odd else None

    def _read(self, lines: Sequence[bytes], missing: int) -> Any:
        """A table from lines to their numbers, from 0."""
        # TensorFlow copies the file when the model is saved, so it lives as long as this object.
        folder = Path(tempfile.mkdtemp(prefix="vocabulary_"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = folder / f"vocabulary_{len(lines)}.txt"
        path.write_bytes(b"\n".join(lines) + b"\n")
        index = tf.lookup.TextFileIndex
        initializer = tf.lookup.TextFileInitializer(
            str(path), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER, len(lines)
        )
        return tf.lookup.StaticHashTable(initializer, missing)

    def lookup(self, values: Any) -> Any:
        """The results, int64."""
        line = self.table.lookup(values)
        if self.odd is None:
            return line + self._first
        flat = tf.reshape(line, [-1])
        left_out = tf.searchsorted(tf.constant(self._gaps), flat, side="right", out_type=tf.int64)
        positions = line + tf.reshape(left_out, tf.shape(line)) + self._first
        return tf.where(tf.less(line, 0), self.odd.lookup(values), positions)


def _cannot_be_a_line(text: bytes) -> bool:
    return not text or any(mark in text for mark in BREAKS_LINES)
