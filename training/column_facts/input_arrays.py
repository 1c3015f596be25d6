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
        TrainingError: lists in place of single values or the reverse, a null, or another kind of
            values than the input's, such as fractions as ids.

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
    return [array.astype(spec.dtype) for array, spec in zip(arrays, inputs, strict=True)]
