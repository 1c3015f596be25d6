"""Numeric columns as functions from a column of data to numbers, which `LambdaOp` traces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from training.errors import TrainingError
from workflow.expressions.language.tree import Expression, source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.program.tracing import trace


def numbers_of(column: Any) -> Callable[[Expression], Expression]:
    """The float32 numbers of a numeric column, as TensorFlow parses, normalises and casts them.

    A missing number is `default_value`, or else null. Vectors of k numbers are lists; a list of
    another length is cut, or filled with the default value, or else with NaN.

    Args:
        column: a NumericColumn.

    Raises:
        TrainingError: a shape of several dimensions, default values that differ, or a
            `normalizer_fn` that cannot be traced.
    """
    dtype, width, default = column.dtype.name, width_of(column), _default(column)
    _expect_traceable(column, dtype)

    def numbers(values: Expression) -> Expression:
        _expect_numbers(values, column, width)
        values = values.cast(dtype)
        values = values if default is None else values.fill_null(default)
        if width > 1:
            values = values.list_pad(width, math.nan if default is None else default)
        if column.normalizer_fn is not None:
            values = column.normalizer_fn(values)
        return values.cast("float32")

    return numbers


def width_of(column: Any) -> int:
    """The count of numbers of a numeric column in a row.

    Raises:
        TrainingError: they have several dimensions.
    """
    if len(column.shape) != 1:
        raise TrainingError(
            f"Expected numeric columns of single numbers or vectors, shape (k,). Received: "
            f"{column.key!r} of shape {tuple(column.shape)}. Give the column the shape "
            f"({math.prod(column.shape)},) and its data as flat lists, and reshape in the network."
        )
    return int(column.shape[0])


def _expect_numbers(values: Expression, column: Any, width: int) -> None:
    expected = "lists of numbers" if width > 1 else "single numbers"
    if not (values.type.is_number or values.type.kind == "bool") or values.type.is_list != (
        width > 1
    ):
        raise ExpressionError(
            f"Expected {expected} in column {column.key!r}, as its shape {tuple(column.shape)} says. "
            f"Received: {values.type}."
        )


def _default(column: Any) -> Any:
    if column.default_value is None:
        return None
    different = set(np.ravel(column.default_value).tolist())
    if len(different) > 1:
        raise TrainingError(
            f"Expected one default_value of {column.key!r} for all its numbers. "
            f"Received: {column.default_value!r:.200}. Fill lists that are missing in the data."
        )
    return different.pop()


def _expect_traceable(column: Any, dtype: str) -> None:
    if column.normalizer_fn is None:
        return
    try:
        trace(column.normalizer_fn, source(column.key, Type(dtype)))
    except ExpressionError as error:
        raise TrainingError(
            f"Expected a normalizer_fn of {column.key!r} of arithmetic and numpy's functions, such "
            "as lambda x: (x - 3.0) / 4.0 and numpy.log1p, which are traced to the workflow's "
            f"verbs. Received: {error} Replace functions of TensorFlow by numpy's."
        ) from error
