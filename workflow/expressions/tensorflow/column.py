"""A column of data in TensorFlow: `workflow.schema.column.Column` with tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorColumn:
    """Values of one column, with nulls and list lengths in separate tensors.

    Attributes:
        values: shape (N,) for a scalar column; for a list column the elements of all rows in
            sequence, shape (sum of lengths,). Strings are UTF-8. A constant of a program has the
            shape ().
        valid: bool, with the shape of `values`, False where the value is null; None if nothing can
            be null. `values` is unspecified at nulls.
        lengths: int64 row lengths, shape (N,), for a list column; None for a scalar column.

    Example:
        >>> import tensorflow as tf
        >>> TensorColumn(tf.constant([1, 2, 3]), lengths=tf.constant([2, 0, 1], tf.int64)).is_list
        True
    """

    values: Any
    valid: Any = None
    lengths: Any = None

    @property
    def is_list(self) -> bool:
        """Whether each row holds a list."""
        return self.lengths is not None


Function = Callable[..., TensorColumn]
