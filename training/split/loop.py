"""Several training steps a call, without waiting for the GPU between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf


def install(model: keras.Model) -> None:
    """Gives a compiled model a training function that lets the host run ahead of the GPU.

    Keras' own joins several steps by conditions in the graph: whether steps are left, and whether
    there is a batch. What they say TensorFlow copies to the GPU, behind all work that waits there,
    and sends what depends on it after that. So the GPU waits for the host after each step. Here
    the host decides, in Python.
    """

    def make_train_function(force: bool = False) -> None:
        if model.train_function is None or force:
            model.train_function = _TrainFunction(model)

    model.make_train_function = make_train_function


def uninstall(model: keras.Model) -> None:
    """Gives the model Keras' own training function back."""
    vars(model).pop("make_train_function", None)


class _TrainFunction:
    """The function that Keras calls for `steps_per_execution` steps, or for those that there are batches for.

    Keras reads the metrics after each call, and waits for the GPU with that.
    """

    def __init__(self, model: keras.Model) -> None:
        self._most = model.steps_per_execution
        step = model.train_step
        # `train_on_batch` gives lists whose lengths all differ: one graph is for them all.
        self._step = tf.function(step, autograph=False, reduce_retracing=True)
        self._next_step = tf.function(
            lambda iterator: step(_present(iterator.get_next())), autograph=False
        )

    def __call__(self, iterator: Iterator[Any]) -> Mapping[str, tf.Tensor]:
        """Trains on the next batches.

        Args:
            iterator: TensorFlow's of a dataset; or Python's, which `train_on_batch` has.

        Returns:
            the metrics after the last step.

        Raises:
            tf.errors.OutOfRangeError: there is no batch.
        """
        if not isinstance(iterator, tf.data.Iterator):
            for batch in itertools.islice(iterator, self._most):
                logs = self._step(batch)
            return logs
        logs = self._next_step(iterator)
        try:
            for _ in range(self._most - 1):
                logs = self._next_step(iterator)
        except tf.errors.OutOfRangeError:
            pass  # the steps that there were batches for
        return logs


def _present(batch: Any) -> Any:
    """The batch with None for what is not there; Keras hands that over as an empty Optional."""
    return keras.tree.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch
    )
