"""Columns of numbers as layers take them: one number a row, or a vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training.errors import TrainingError
from training.tables.ids import flat_integers, seen
from workflow.schema.names import listed
from workflow.schema.python_number import whole_number


def widths_of(continuous: Any) -> dict[str, int | None]:
    """Column -> numbers in a row; None for as many as the input has.

    Raises:
        TrainingError: not a list of distinct names, nor such a dictionary.
    """
    if isinstance(continuous, Mapping):
        return {
            name: k if k is None else whole_number(f"the numbers of {name!r}", k, 1, TrainingError)
            for name, k in continuous.items()
        }
    names = [continuous] if isinstance(continuous, str) else list(continuous)
    if isinstance(continuous, str) or not all(isinstance(name, str) for name in names):
        raise TrainingError(
            "Expected continuous as a list of names of columns, or as a dictionary of column -> "
            f"numbers in a row. Received: {continuous!r}."
        )
    if len(set(names)) != len(names):
        raise TrainingError(f"Expected each column once. Received: {listed(names)}.")
    return dict.fromkeys(names)


def number_count(column: str, shape: Any, width: int | None) -> int:
    """The count of numbers in a row of a column, from the shape of its input.

    Args:
        column: name of the column.
        shape: (N, k), (N * k, 1), or the shapes of a pair (values, nnzs).
        width: k, if the layer's arguments give it.

    Raises:
        TrainingError: another shape, or a pair where k is not known.
    """
    is_pair = bool(shape) and isinstance(shape[0], (tuple, list))
    if is_pair and (width is None or width == 1 or len(shape) != 2):
        raise TrainingError(
            f"Expected numbers {_form(width)} for {column!r}. Received: a pair (values, nnzs). "
            f"For lists that all have k numbers pass continuous={{{column!r}: k}} or "
            f"numeric_column({column!r}, (k,)); pad other lists: sparse_names and "
            "sparse_as_dense=True of the loader, or ops.ListSlice(pad=True)."
        )
    if not is_pair and (len(shape) != 2 or shape[1] not in (1, width or shape[1] or 1)):
        raise TrainingError(
            f"Expected numbers {_form(width)} for {column!r}. Received: shape {tuple(shape)}."
        )
    return int(width or shape[1])


def _form(width: int | None) -> str:
    return f"(N, {'k' if width is None else width})"


def number_rows(column: str, given: Any, width: int | None, dtype: str) -> tf.Tensor:
    """A column of numbers as (N, k).

    Raises:
        TrainingError: another shape, as in `number_count`.
        tf.errors.InvalidArgumentError: rows with another number of values than k.
    """
    count = number_count(
        column, tf.nest.map_structure(lambda part: tuple(part.shape), given), width
    )
    if isinstance(given, (tuple, list)):
        values, lengths = given[0], flat_integers(column, "nnzs", given[1])
        message = (
            f"Expected {count} numbers in each row of {column!r}, as in the layer's arguments. "
            "Received rows of:"
        )
        received = [message, tf.reduce_min(lengths), tf.reduce_max(lengths)]
        given = seen(values, tf.reduce_all(lengths == count), received)
    numbers = tf.cast(given, dtype)
    return numbers if numbers.shape[1] == count else tf.reshape(numbers, [-1, count])
