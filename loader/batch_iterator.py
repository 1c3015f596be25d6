"""The iterator that `iter(loader)` gives, for Python loops and for compiled Keras steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from loader.errors import LoaderError
from loader.layout import Layout
from loader.stream import Stream
from loader.tensors import to_batch


class BatchIterator(OwnedIterator):
    """Batches of one epoch.

    TensorFlow's own iterator copies each tensor and wraps each exception. A Python loop gets its
    batches directly instead: without a copy, and with exceptions as they are. Handed to a
    `tf.function`, as Keras does, the iterator works as TensorFlow's.

    Args:
        dataset: what TensorFlow iterates over.
        stream: what Python iterates over.
        layout: the columns of a batch.
    """

    def __init__(self, dataset: tf.data.Dataset, stream: Stream, layout: Layout) -> None:
        super().__init__(dataset)
        self._stream = stream
        self._layout = layout
        self._compiled = False

    def __next__(self) -> Any:
        if self._compiled or not tf.executing_eagerly():
            return super().__next__()
        return to_batch(self._layout, next(self._stream))

    @property
    def _type_spec(self) -> Any:
        """What TensorFlow asks for when the iterator goes into a `tf.function`."""
        if self._stream.begun:
            raise LoaderError(
                "Expected a fresh iterator in a tf.function. Received: one whose first batches a "
                "Python loop has taken. Call iter(loader) again."
            )
        self._compiled = True
        return super()._type_spec
