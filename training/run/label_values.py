"""Labels that a loss would change or cannot learn, and negative weights, found inside the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError

CHANCES = (keras.losses.binary_crossentropy, keras.losses.binary_focal_crossentropy)


class LabelValues:
    """A label of the steps so far that does not suit its loss, or a negative weight of a row.

    Keras itself cuts the label 1.5 of a class to 1, and lets a negative loss grow without end.
    NaN is left to the check of the loss, except of a class, which would become a number.

    Args:
        losses: the loss of the output, or of each output by its name.

    Example:
        >>> labels = LabelValues("sparse_categorical_crossentropy")
        >>> labels.look(tf.constant([[1.0], [1.5]]), None)
        >>> labels.check()
        Traceback (most recent call last):
        training.errors.TrainingError: Expected whole numbers as labels for ... Received: 1.5. ...
    """

    def __init__(self, losses: Any) -> None:
        by_name = losses if isinstance(losses, Mapping) else {"": losses}
        self._losses = {name: function_of(loss) for name, loss in by_name.items()}
        # Where the steps compute: a step that copied it to the host would wait for the GPU. The host reads
        # it after each call of steps. Zero is never wrong.
        self._found = tf.Variable(tf.zeros([len(by_name) + 1]), trainable=False)

    def look(self, y: Any, weight: Any) -> None:
        """Keep an unsuitable label of each output, and a negative weight."""
        labels = {**y} if isinstance(y, Mapping) else keras.tree.flatten(y)
        if not isinstance(labels, dict) or len(labels) == len(self._losses) == 1:
            labels = dict(zip(self._losses, keras.tree.flatten(labels), strict=False))
        found = [
            _unsuitable(labels[name], loss) if name in labels else 0.0
            for name, loss in self._losses.items()
        ]
        weights = [_extreme(w, w < 0) for w in keras.tree.flatten(weight) if w is not None]
        now = tf.stack([*found, tf.reduce_min(tf.stack([0.0, *weights]))])
        self._found.assign(tf.where(now != 0, now, self._found))

    def check(self) -> None:
        """Raise TrainingError if one was found."""
        *labels, weight = self._found.numpy().tolist()
        for (name, loss), label in zip(self._losses.items(), labels, strict=True):
            if label == 0:
                continue
            of = f" in {name!r}" if name else ""
            if loss in CHANCES:
                raise TrainingError(
                    f"Expected labels from 0 to 1 for {loss.__name__}{of}. Received: {label:g}. Make them "
                    "0 and 1 in the workflow: ops.LambdaOp(lambda rating: (rating > 3).cast('int8')); or "
                    "take another loss."
                )
            raise TrainingError(
                f"Expected whole numbers as labels for {loss.__name__}{of}, the numbers of classes. "
                f"Received: {label:g}. Number the classes in the workflow: ops.Categorify(); or take "
                "another loss."
            )
        if weight < 0:
            raise TrainingError(
                f"Expected weights of rows of at least 0. Received: {weight:g}, with which the loss has no "
                "least value. Clip them: tf.maximum(weights, 0.0)."
            )


def function_of(loss: Any) -> Any:
    """Keras' function of a loss or of its name; None or the loss itself if it is none of Keras'."""
    found = None if loss is None else keras.losses.get(loss)
    return getattr(found, "fn", found)


def _unsuitable(label: Any, loss: Any) -> Any:
    """A label that the loss does not take, else 0."""
    number = tf.cast(label, tf.float32)
    if loss in CHANCES:
        return _extreme(number, (number < 0) | (number > 1))
    if loss is keras.losses.sparse_categorical_crossentropy:
        return _extreme(number, number != tf.floor(number))
    return 0.0


def _extreme(values: Any, chosen: Any) -> Any:
    """The largest of the chosen values, or the least if none is above 0; 0 if none is chosen."""
    values = tf.where(chosen, tf.cast(values, tf.float32), 0.0)
    largest = tf.maximum(tf.reduce_max(values), 0.0)  # without values -inf and inf
    return tf.where(largest > 0, largest, tf.minimum(tf.reduce_min(values), 0.0))
