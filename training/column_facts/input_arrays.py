"""A column of items as the arrays that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from training.errors import TrainingError
from workflow.expressions.polars.series import to_column
from workflow.schema.column import Array


def input_arrays(column: pl.Series, inputs: Sequence[Any]) -> list[Array]:
    """The values of a column, (N,), and of a list also the row lengths, in the inputs' dtypes.

    Args:
        column: a column of items, whose name the errors state.
        inputs: the Keras tensor of the values, and of a list also that of the row lengths.

    Raises:
        TrainingError: lists in place of single values or the reverse, a null, another kind of values
            than the input's, such as fractions as ids, or integers beyond its dtype.

    Example:
        >>> input_arrays(pl.Series("price", [1, 2]), [keras.Input((1,), dtype="float32")])
        [array([1., 2.], dtype=float32)]
    """
    values = to_column(column)
    arrays = [values.array] if values.lengths is None else [values.array, values.lengths]
    if len(arrays) != len(inputs):
        raise TrainingError(
            f"Expected {'lists' if len(inputs) > 1 else 'single values'} in the column "
            f"{column.name!r} of items. Received: {column.dtype}."
        )
    if values.valid is not None:
        count = int((~values.valid).sum())
        raise TrainingError(
            f"Expected no null in {column.name!r} of items. Received: {count:,} "
            f"null{'s' if count > 1 else ''}. Put FillMissing or Categorify after the operator that "
            "makes it null."
        )
    dtype = inputs[0].dtype
    if not np.can_cast(values.array.dtype, dtype, "same_kind"):
        raise TrainingError(
            f"Expected {column.name!r} as numbers of {dtype}. Received: {column.dtype}. Transform "
            "the items with the workflow of the training."
        )
    expect_fitting(values.array, dtype, f"{column.name!r} of items")
    return [array.astype(spec.dtype) for array, spec in zip(arrays, inputs, strict=True)]


def expect_fitting(array: Array, dtype: str, where: str) -> None:
    """Raise TrainingError for integers that a dtype of integers does not hold.

    Args:
        array: the values, of any dtype.
        dtype: that of the model's input.
        where: what has the values, for the error.
    """
    if array.dtype.kind not in "iu" or np.dtype(dtype).kind not in "iu" or not array.size:
        return
    limits, least, most = np.iinfo(dtype), array.min(), array.max()
    if least < limits.min or most > limits.max:
        raise TrainingError(f"{too_narrow(dtype, where)} Received: {least} to {most}.")


def too_narrow(dtype: str, where: str) -> str:
    """The beginning of the error of integers that a dtype does not hold: a cast gives others, unseen."""
    return (
        f"Expected integers that fit into {dtype}, as the model takes them, in {where}. Number ids "
        "from 0 (ops.Categorify, ops.HashBucket), or give id_dtypes to the model."
    )
