"""A `tf.data.Dataset` over Python streams, with as little work per batch as TensorFlow allows.

`tf.data.Dataset.from_generator` does the same with checks on every tensor of every batch, which
cost more than reading it. Here the structure is fixed in advance, so a batch is one call that
returns a flat list of arrays.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from loader.errors import LoaderError
from loader.tensorflow.freed_memory import keep_freed_memory
from loader.tensorflow.private import HandleDataset
from loader.tensorflow.tensors import Transport

# As in TensorFlow's own datasets on a GPU. Running a function that may be spread over devices costs
# 50 us more each time.
_ON_ONE_DEVICE = {"experimental_ints_on_device": True}


class StreamRegistry:
    """The streams that TensorFlow iterators have open.

    Each stream has a number, which travels as the length of a tensor without elements: Python reads
    a shape at once, but would have to wait for a GPU to read a value.
    """

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self._make = make
        self._numbers = itertools.count()
        self._streams: dict[int, Iterator[Any]] = {}
        self._lock = threading.Lock()

    def open(self) -> Any:
        """Start a stream, and return the token that identifies it."""
        with self._lock:
            number = next(self._numbers)
            self._streams[number] = self._make()
        return np.empty((number, 0), np.float32)

    def next(self, token: Any) -> Any:
        """The next batch; `StopIteration` ends the TensorFlow iterator."""
        return next(self._streams[token.shape[0]])

    def close(self, token: Any) -> Any:
        """Drop a stream, whether or not it was read to its end.

        A garbage collection that frees TensorFlow's iterator waits for this: it waits for nothing.
        """
        del self._streams[token.shape[0]]
        return np.int64(0)


def _alive(weak: weakref.ref[GeneratorFunctions]) -> GeneratorFunctions:
    functions = weak()
    if functions is None:
        raise LoaderError(
            "Expected the loader to live for as long as datasets made from it are read. "
            "Received: a loader that was dropped. Keep it in a variable."
        )
    return functions


def _close(weak: weakref.ref[GeneratorFunctions], token: Any) -> Any:
    functions = weak()
    return np.int64(0) if functions is None else functions.streams.close(token)


class GeneratorFunctions:
    """The three functions of TensorFlow's generator dataset. They must outlive the dataset.

    Args:
        streams: the open streams.
        transport: transport of batches into TensorFlow.
    """

    def __init__(self, streams: StreamRegistry, transport: Transport) -> None:
        token = tf.TensorSpec((None, 0), tf.float32)
        # TensorFlow keeps Python functions for as long as the process lives. They must not keep the
        # loader, its columns, its data and its threads alive.
        self.streams = streams
        weak = weakref.ref(self)

        def next_parts(token: Any) -> list[Any]:
            return _alive(weak).next_parts(token)

        def next_batch(token: tf.Tensor) -> list[tf.Tensor]:
            tensors = transport.call(next_parts, [token])
            for tensor, spec in zip(tensors, transport.specs, strict=True):
                tensor.set_shape(spec.shape)
            return tensors

        def open_now() -> Any:
            return _alive(weak).streams.open()

        def open_stream() -> tf.Tensor:
            return tf.numpy_function(open_now, [], tf.float32)

        def close_stream(token: tf.Tensor) -> tf.Tensor:
            return tf.numpy_function(lambda token: _close(weak, token), [token], tf.int64)

        self._open = tf.function(open_stream, autograph=False).get_concrete_function()
        self._next = tf.function(
            next_batch, autograph=False, experimental_attributes=_ON_ONE_DEVICE
        ).get_concrete_function(token)
        self._close = tf.function(close_stream, autograph=False).get_concrete_function(token)
        self._transport = transport

    def next_parts(self, token: Any) -> list[Any]:
        """The parts of a stream's next batch."""
        return self._transport.arrange(self.streams.next(token))

    def dataset(self) -> tf.data.Dataset:
        """A new dataset over the streams.

        TensorFlow would add a prefetching thread to any dataset that is iterated. The stream has
        its own; a second one would run ahead of the saved position, and would wait forever for
        Python when the interpreter exits. Its thread that tunes datasets has nothing to tune here,
        and freeing an iterator may wait until that thread's next turn: as long as the epoch took, up
        to a minute.
        """
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        options.autotune.enabled = False
        specs = self._transport.specs
        with tf.device(self._transport.device):
            handle = tf.raw_ops.GeneratorDataset(
                init_func_other_args=[],
                next_func_other_args=[],
                finalize_func_other_args=[],
                init_func=self._open,
                next_func=self._next,
                finalize_func=self._close,
                output_types=[spec.dtype for spec in specs],
                output_shapes=[spec.shape for spec in specs],
            )
            keep_freed_memory()
            return HandleDataset(handle, self._transport.element_spec).with_options(options)
