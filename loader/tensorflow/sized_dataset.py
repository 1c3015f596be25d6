"""A `tf.data.Dataset` that knows its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from loader.epochs import Epochs
from loader.errors import LoaderError
from loader.tensorflow.private import HandleDataset, dataset_of, handle_of


class SizedDataset(HandleDataset):
    """A dataset whose length Python knows and TensorFlow cannot determine.

    Keras asks for the length before the first epoch, and without it warns that data ran out.
    `tf.data.experimental.assert_cardinality` would fail on a resumed epoch, which is shorter. The
    results of `map`, `prefetch`, `take` and `skip` know their length too.

    Args:
        dataset: source of the elements.
        size: number of elements in one pass; `tf.data.INFINITE_CARDINALITY` for an endless dataset.
        keep: object that has to live for as long as the dataset does.
        epochs: those of the loader whose batches the elements are, if they are.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        size: int,
        keep: object = None,
        epochs: Epochs | None = None,
    ) -> None:
        self._keep = keep
        self._source = epochs
        self._size = size
        super().__init__(handle_of(dataset), dataset.element_spec, [dataset])

    def __len__(self) -> int:
        """The number of elements in one pass.

        Raises:
            TypeError: the dataset is infinite, as for other datasets of TensorFlow.
        """
        if self._size == tf.data.INFINITE_CARDINALITY:
            raise TypeError("The dataset is infinite.")
        return self._size

    def cardinality(self) -> tf.Tensor:
        """`len` in the form TensorFlow asks for: an int64 scalar."""
        return tf.constant(self._size, tf.int64)

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> SizedDataset:
        """`tf.data.Dataset.map`, keeping the length.

        Args:
            map_func: takes `x, y` as TensorFlow symbols and gives a batch, which may be
                `(x, y, sample_weight)`.
            *args: of `tf.data.Dataset.map`.
            **kwargs: of `tf.data.Dataset.map`.

        Example:
            >>> train.map(lambda x, y: (x, y, tf.where(y > 0, 2.0, 1.0)))  # doctest: +SKIP
        """
        return self._derived(super().map(map_func, *args, **kwargs), self._size)

    def prefetch(self, *args: Any, **kwargs: Any) -> SizedDataset:
        """`tf.data.Dataset.prefetch`, keeping the length."""
        return self._derived(super().prefetch(*args, **kwargs), self._size)

    def repeat(self, count: Any = None, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """`tf.data.Dataset.repeat`, with a length if `count` is a number or None."""
        repeated = super().repeat(count, *args, **kwargs)
        number = -1 if count is None else known(count)
        return repeated if number is None else self._derived(repeated, self._repeated(number))

    def take(self, count: Any, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """`tf.data.Dataset.take`, with a length if `count` is a number."""
        dataset, number = super().take(count, *args, **kwargs), known(count)
        return dataset if number is None else self._derived(dataset, self._taken(number))

    def skip(self, count: Any, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """`tf.data.Dataset.skip`, with a length if `count` is a number."""
        rest, number = super().skip(count, *args, **kwargs), known(count)
        return rest if number is None else self._derived(rest, self._left_by(number))

    def _derived(self, dataset: tf.data.Dataset, size: int) -> SizedDataset:
        return SizedDataset(dataset, size, epochs=self._source)

    def _repeated(self, number: int) -> int:
        is_endless = number < 0 or self._size == tf.data.INFINITE_CARDINALITY
        return tf.data.INFINITE_CARDINALITY if is_endless else self._size * number

    def _taken(self, number: int) -> int:
        everything = number < 0 or 0 <= self._size <= number
        return self._size if everything else number

    def _left_by(self, number: int) -> int:
        if number < 0:
            return 0
        is_endless = self._size == tf.data.INFINITE_CARDINALITY
        return self._size if is_endless else max(0, self._size - number)


def loader_read_by(iterator: tf.data.Iterator) -> tuple[Epochs, int] | None:
    """The epochs of the loader that an iterator reads, also mapped, repeated or cut, and its batches.

    None for other data. The number of batches is `tf.data.INFINITE_CARDINALITY` if they have no end.
    """
    dataset = dataset_of(iterator)
    epochs = epochs_read_by(dataset)
    return None if epochs is None else (epochs, dataset._size)  # noqa: SLF001 - of this class


def epochs_read_by(data: object) -> Epochs | None:
    """The epochs of the loader that data is or reads, mapped, repeated or cut; None for other data."""
    return data._source if isinstance(data, SizedDataset) else None  # noqa: SLF001 - of this class


def refuse_reader(device: str) -> NoReturn:
    """Refuse a transformation of TensorFlow, which reads on the host what a GPU's memory has.

    Args:
        device: TensorFlow's name of the GPU.

    Raises:
        LoaderError: in any case.
    """
    raise LoaderError(
        "Expected map, repeat, take, skip or prefetch, the transformations of tf.data that work on a "
        f"GPU. Received: another one, of a loader on {device}. "
        'Pass device="cpu" to the loader.'
    )


def known(count: Any) -> int | None:
    """A number of elements, or None for a tensor of a graph."""
    value = tf.get_static_value(tf.convert_to_tensor(count))
    return None if value is None else int(value)
