"""Several training steps a call, without waiting for the GPU between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

# Where the host decides what comes next.
HOST = "/cpu:0"


def install(model: keras.Model) -> None:
    """Gives a compiled model a training function that lets the host run ahead of the GPU.

    Keras' own joins two truths that the host knows, that steps are left and that there is a batch,
    on the GPU, and fetches the result. So each step waits until the GPU has finished the one
    before, and then the GPU until the next has been sent to it.
    """

    def make_train_function(force: bool = False) -> None:
        if model.train_function is None or force:
            model.train_function = _train_function(model)

    model.make_train_function = make_train_function


def uninstall(model: keras.Model) -> None:
    """Gives the model Keras' own training function back."""
    vars(model).pop("make_train_function", None)


def _train_function(model: keras.Model) -> Callable[[Any], Any]:
    most = model.steps_per_execution
    step = tf.function(lambda batch: model.train_step(_present(batch)), autograph=False)
    steps = tf.function(lambda iterator: _steps(step, iterator, most), autograph=False)

    def run(iterator: Any) -> Any:
        """What Keras calls with an iterator of TensorFlow's, or for one batch with Python's."""
        if isinstance(iterator, tf.data.Iterator):
            return steps(iterator)
        for batch in itertools.islice(iterator, most):
            logs = step(batch)
        return logs

    return run


def _present(batch: Any) -> Any:
    """The batch with None for what is not there; Keras hands that over as an empty Optional."""
    return keras.tree.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch
    )


def _movable(batch: Any) -> Any:
    """The batch with int64 for int32, which TensorFlow takes through the host between functions."""
    return keras.tree.map_structure(
        lambda part: tf.cast(part, tf.int64) if _is_int32(part) else part, batch
    )


def _is_int32(part: Any) -> bool:
    return isinstance(part, tf.Tensor) and part.dtype == tf.int32


def _steps(
    step: Callable[[Any], Mapping[str, tf.Tensor]], iterator: Any, most: int
) -> Mapping[str, tf.Tensor]:
    """Takes `most` steps, or those that there are batches for; what the last one gives.

    Raises:
        tf.errors.OutOfRangeError: there is no batch.
    """
    logs = step(_movable(iterator.get_next()))
    if most == 1:
        return logs

    def fetched(count: tf.Tensor, batch: Any) -> Any:
        return tf.cond(count < most, iterator.get_next_as_optional, lambda: batch)

    def goes_on(count: tf.Tensor, logs: Any, batch: Any) -> tf.Tensor:  # noqa: ARG001
        is_there = batch.has_value()
        with tf.device(HOST):
            return tf.logical_and(count < most, is_there)

    def body(count: tf.Tensor, logs: Any, batch: Any) -> Any:
        logs = step(_movable(batch.get_value()))
        return count + 1, logs, fetched(count + 1, batch)

    start = (tf.constant(1), logs, iterator.get_next_as_optional())
    return tf.while_loop(goes_on, body, start)[1]
