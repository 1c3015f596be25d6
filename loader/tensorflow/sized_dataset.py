"""A `tf.data.Dataset` that knows its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from loader.tensorflow.private import HandleDataset, handle_of


class SizedDataset(HandleDataset):
    """A dataset whose number of elements Python knows and TensorFlow cannot find out.

    Keras asks for it before the first epoch, and remarks that data ran out when it is not told.
    `tf.data.experimental.assert_cardinality` would not do: it fails on an epoch that is resumed,
    which is shorter. What `map` and `prefetch` return knows its length too.

    Args:
        dataset: gives the elements.
        size: their number in one pass; `tf.data.INFINITE_CARDINALITY` if there is no end.
        keep: what has to live for as long as the dataset does.
    """

    def __init__(self, dataset: tf.data.Dataset, size: int, keep: object = None) -> None:
        self._keep = keep
        self._size = size
        super().__init__(handle_of(dataset), dataset.element_spec, [dataset])

    def __len__(self) -> int:
        """The number of elements in one pass.

        Raises:
            TypeError: there is no end of them, as for other datasets of TensorFlow.
        """
        if self._size == tf.data.INFINITE_CARDINALITY:
            raise TypeError("The dataset is infinite.")
        return self._size

    def cardinality(self) -> tf.Tensor:
        """`len` as TensorFlow asks for it: an int64 scalar."""
        return tf.constant(self._size, tf.int64)

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> SizedDataset:
        """As `tf.data.Dataset.map`, keeping the length.

        Args:
            map_func: takes `x, y` as TensorFlow symbols and gives a batch, which may be
                `(x, y, sample_weight)`.
            *args: of `tf.data.Dataset.map`.
            **kwargs: of `tf.data.Dataset.map`.

        Example:
            >>> train.map(lambda x, y: (x, y, tf.where(y > 0, 2.0, 1.0)))  # doctest: +SKIP
        """
        return SizedDataset(super().map(map_func, *args, **kwargs), self._size)

    def prefetch(self, *args: Any, **kwargs: Any) -> SizedDataset:
        """As `tf.data.Dataset.prefetch`, keeping the length."""
        return SizedDataset(super().prefetch(*args, **kwargs), self._size)
