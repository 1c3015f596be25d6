"""Arrays handed to TensorFlow: the structure of a batch and the transfer of its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.experimental.dlpack import from_dlpack

from loader.batches.batches import Array
from loader.files.layout import BatchColumn, BatchLayout


def flat_specs(layout: BatchLayout) -> list[tf.TensorSpec]:
    """Dtype and shape of each tensor, in the order of the layout."""
    specs = []
    for column in layout.columns:
        specs.append(tf.TensorSpec((None, _width(column)), column.type.dtype))
        if column.is_ragged:
            specs.append(tf.TensorSpec((None, 1), tf.int32))
    return specs


def _width(column: BatchColumn) -> int:
    return column.width if column.is_padded and column.width is not None else 1


def borrow(array: Array) -> tf.Tensor:
    """An array of numbers as an eager tensor over the same memory."""
    # DLPack cannot export an empty array, so copy it.
    return from_dlpack(array.__dlpack__()) if array.size else tf.constant(array)


class Transport(Protocol):
    """Transport of batches from a stream into TensorFlow; each device has one.

    Attributes:
        device: where a dataset's elements are, by TensorFlow's name.
        specs: dtype and shape of the parts that cross into TensorFlow for each batch.
        element_spec: spec of the element that a dataset makes from them.
    """

    device: str
    specs: list[tf.TensorSpec]
    element_spec: Any

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """An operation that calls Python for the parts of a batch, in the order of `specs`."""

    def arrange(self, batch: Any) -> list[Any]:
        """A batch of the stream, in the order of `specs`."""

    def to_batch(self, batch: Any) -> Any:
        """A batch of the stream, as eager tensors in the batch's structure."""

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Complete a dataset whose elements have `element_spec`."""


class HostTransport:
    """Transport of arrays in the machine's memory."""

    device = "/cpu:0"

    def __init__(self, layout: BatchLayout) -> None:
        self._layout = layout
        specs = flat_specs(layout)
        # TensorFlow flattens a dict by its sorted keys.
        self._order = tf.nest.flatten(layout.pack(range(len(specs))))
        self._makers = [tf.constant if spec.dtype == tf.string else borrow for spec in specs]
        self.specs = [specs[index] for index in self._order]
        self.element_spec = layout.pack(specs)

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """See `Transport`."""
        return tf.numpy_function(function, inputs, [spec.dtype for spec in self.specs])

    def arrange(self, batch: Sequence[Array]) -> list[Any]:
        """See `Transport`."""
        return [batch[index] for index in self._order]

    def to_batch(self, batch: Sequence[Array]) -> Any:
        """See `Transport`."""
        tensors = [make(array) for make, array in zip(self._makers, batch, strict=True)]
        return self._layout.pack(tensors)

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """See `Transport`."""
        return dataset
