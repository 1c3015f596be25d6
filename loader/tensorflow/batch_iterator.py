"""The iterator from `iter(loader)`, for Python loops and for compiled Keras steps."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from loader.batches.stream import Stream
from loader.errors import LoaderError
from loader.tensorflow.private import ITERATOR_PARTS, OwnedIterator
from loader.tensorflow.tensors import Transport


class BatchIterator(OwnedIterator):
    """Batches of one epoch.

    TensorFlow's own iterator copies each tensor and wraps each exception. A Python loop gets its
    batches directly instead: without a copy, and with exceptions unchanged. Passed to a
    `tf.function`, as Keras does, it behaves as TensorFlow's own iterator.

    Args:
        dataset: the dataset that TensorFlow iterates over.
        stream: the stream that Python iterates over.
        transport: transport of its batches into TensorFlow.
    """

    def __init__(self, dataset: tf.data.Dataset, stream: Stream, transport: Transport) -> None:
        self._dataset = dataset  # as TensorFlow's own iterator has it
        self._stream = stream
        self._transport = transport
        self._compiled = False

    def __next__(self) -> Any:
        if self._compiled or not tf.executing_eagerly():
            return super().__next__()
        return self._transport.to_batch(next(self._stream))

    def __getattr__(self, name: str) -> Any:
        """Create TensorFlow's iterator when one of its attributes is requested.

        Creating it takes longer than reading some batches, and a Python loop needs none.
        """
        if name not in ITERATOR_PARTS:
            raise AttributeError(name)
        if self._stream.begun:
            raise LoaderError(
                "Expected a fresh iterator in a tf.function. Received: one whose first batches a "
                "Python loop has taken. Call iter(loader) again."
            )
        self._compiled = True
        with tf.device(self._transport.device):
            super().__init__(self._dataset)
        return getattr(self, name)
