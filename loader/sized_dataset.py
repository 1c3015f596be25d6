"""A `tf.data.Dataset` that knows its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class SizedDataset(tf.data.Dataset):
    """A dataset whose number of elements Python knows and TensorFlow cannot find out.

    Keras asks for it before the first epoch, and remarks that data ran out when it is not told.
    `tf.data.experimental.assert_cardinality` would not do: it fails on an epoch that is resumed,
    which is shorter. What `map` and `prefetch` return knows its length too.

    Args:
        variant: TensorFlow's handle of the dataset.
        element_spec: dtypes and shapes of an element.
        size: the number of elements.
        inputs: the datasets it is made from.
    """

    def __init__(
        self,
        variant: tf.Tensor,
        element_spec: Any,
        size: int,
        inputs: Sequence[tf.data.Dataset] = (),
    ) -> None:
        self._element_spec = element_spec
        self._size = size
        self._made_from = list(inputs)
        super().__init__(variant)

    @property
    def element_spec(self) -> Any:
        """Dtypes and shapes of an element, as `tf.TensorSpec`s in its structure."""
        return self._element_spec

    def __len__(self) -> int:
        """The number of elements in one pass."""
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
        return self._sized(super().map(map_func, *args, **kwargs))

    def prefetch(self, *args: Any, **kwargs: Any) -> SizedDataset:
        """As `tf.data.Dataset.prefetch`, keeping the length."""
        return self._sized(super().prefetch(*args, **kwargs))

    def _sized(self, dataset: tf.data.Dataset) -> SizedDataset:
        variant = dataset._variant_tensor  # noqa: SLF001 - all that a dataset is made of
        return SizedDataset(variant, dataset.element_spec, self._size, [dataset])

    def _inputs(self) -> list[tf.data.Dataset]:
        return self._made_from
