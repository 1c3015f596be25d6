"""Gathers: rows of tables that are saved with the model.

The tables are variables: a graph with its constants is limited to 2 GB, a checkpoint is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Step
from workflow.schema.column import Array, Column

from .column import Function, TensorColumn
from .lookups import to_int64


def gather(step: Step, _: Sequence[Type]) -> Function:
    """The function for a gather step."""
    table: Column = step.parameters["table"]
    return GatherLists(table) if table.is_list else GatherScalars(table)


def _values(table: Column) -> Array:
    array = table.array
    return np.array([text.encode() for text in array], object) if array.dtype == object else array


def _variable(array: Array) -> Any:
    dtype = tf.string if array.dtype == object else None
    return tf.Variable(tf.constant(array, dtype, array.shape), trainable=False, name="table")


def _rows(positions: TensorColumn, size: int) -> tuple[Any, Any]:
    """Whether each position is a row of the table, and the row, or `size`."""
    # The upper half of uint64 becomes negative, which is outside the table as well.
    rows = to_int64(positions.values)
    inside = tf.logical_and(tf.greater_equal(rows, 0), tf.less(rows, size))
    if positions.valid is not None:
        inside = tf.logical_and(inside, positions.valid)
    return inside, tf.where(inside, rows, tf.constant(size, tf.int64))


class GatherScalars(tf.Module):  # type: ignore[misc]
    """Rows of a table of scalars."""

    def __init__(self, table: Column) -> None:
        super().__init__()
        self._size = table.rows
        values = _values(table)
        # One more row, for positions outside the table.
        none = np.array([b""], object) if values.dtype == object else np.zeros(1, values.dtype)
        self.table = _variable(np.concatenate([values, none]))
        self.valid = None if table.valid is None else _variable(np.append(table.valid, False))

    def __call__(self, positions: TensorColumn) -> TensorColumn:
        """The table's value at each position; null for a position outside the table."""
        inside, rows = _rows(positions, self._size)
        valid = inside if self.valid is None else tf.gather(self.valid, rows)
        return TensorColumn(tf.gather(self.table, rows), valid, positions.lengths)


class GatherLists(tf.Module):  # type: ignore[misc]
    """Rows of a table of lists."""

    def __init__(self, table: Column) -> None:
        super().__init__()
        self._size = table.rows
        # One more row, an empty one, for positions outside the table.
        offsets = table.offsets()
        self.offsets = _variable(np.append(offsets, offsets[-1]))
        self.elements = _variable(_values(table))
        self.valid = None if table.valid is None else _variable(table.valid)

    def __call__(self, positions: TensorColumn) -> TensorColumn:
        """The table's list at each position; empty for a position outside the table."""
        _, rows = _rows(positions, self._size)
        offsets, elements = self._take(self.elements, rows)
        valid = None if self.valid is None else self._take(self.valid, rows)[1]
        return TensorColumn(elements, valid, offsets[1:] - offsets[:-1])

    def _take(self, elements: Any, rows: Any) -> tuple[Any, Any]:
        lists = tf.raw_ops.RaggedGather(
            params_nested_splits=[self.offsets],
            params_dense_values=elements,
            indices=rows,
            OUTPUT_RAGGED_RANK=1,
        )
        return lists.output_nested_splits[0], lists.output_dense_values
