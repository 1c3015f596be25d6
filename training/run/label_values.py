"""Labels that a loss would change or cannot learn, and negative weights, found inside the steps."""

from __future__ import annotations

import math
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
        losses: the loss of each output by its name, which is "" of the only one.
        classes: the width of each output by its name; a class beyond it is a loss of NaN on a GPU.

    Example:
        >>> labels = LabelValues({"": "sparse_categorical_crossentropy"}, {"output": 3})
        >>> labels.look(tf.constant([[1.0], [1.5]]), None)
        >>> labels.check()
        Traceback (most recent call last):
        training.errors.TrainingError: Expected whole numbers as labels for ... Received: 1.5. ...
    """

    def __init__(self, losses: Mapping[str, Any], classes: Mapping[str, int | None]) -> None:
        self._losses = {name: function_of(loss) for name, loss in losses.items()}
        self._ignored = {name: getattr(loss, "ignore_class", None) for name, loss in losses.items()}
        if len(losses) == 1:  # whose name is not that of the output
            classes = dict.fromkeys(losses, next(iter(classes.values()), None))
        self._classes = classes
        # Where the steps compute: a step that copied it to the host would wait for the GPU. The host reads
        # it after each call of steps. Zero is never wrong.
        self._found = tf.Variable(tf.zeros([len(losses) + 1]), trainable=False)

    def look(self, y: Any, weight: Any) -> None:
        """Keep an unsuitable label of each output, and a negative weight."""
        labels = {**y} if isinstance(y, Mapping) else keras.tree.flatten(y)
        if not isinstance(labels, dict) or len(labels) == len(self._losses) == 1:
            labels = dict(zip(self._losses, keras.tree.flatten(labels), strict=False))
        found = [
            self._unsuitable(name, labels[name]) if name in labels else 0.0 for name in self._losses
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
            count = self._classes.get(name)
            if count is not None and not label % 1 > 0:
                received = "NaN, a null of a float column" if math.isnan(label) else f"{label:.0f}"
                raise no_such_class(count, received)
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

    def _unsuitable(self, name: str, label: Any) -> Any:
        """A label that the loss does not take, else 0."""
        number, loss = tf.cast(label, tf.float32), self._losses[name]
        if loss in CHANCES:
            return _extreme(number, (number < 0) | (number > 1))
        if loss is not keras.losses.sparse_categorical_crossentropy:
            return 0.0
        wrong = number != tf.floor(number)
        if (count := self._classes.get(name)) is not None:
            wrong |= (number < 0) | (number >= count)
        if (ignored := self._ignored[name]) is not None:
            wrong &= number != ignored
        return _extreme(number, wrong)


def no_such_class(count: int, received: str) -> TrainingError:
    """The error of a label that is no class of an output with `count` of them."""
    return TrainingError(
        f"Expected labels from 0 to {count - 1}, as the output has {count} classes. Received: {received}. "
        "Give the output layer a unit for each class, numbered from 0: for ids of ops.Categorify their "
        "cardinality, a property of the label's column in workflow.output_schema."
    )


def function_of(loss: Any) -> Any:
    """Keras' function of a loss or of its name; None or the loss itself if it is none of Keras'."""
    found = None if loss is None else keras.losses.get(loss)
    return getattr(found, "fn", found)


def _extreme(values: Any, chosen: Any) -> Any:
    """The largest of the chosen values, or the least if none is above 0; 0 if none is chosen."""
    values = tf.where(chosen, tf.cast(values, tf.float32), 0.0)
    largest = tf.maximum(tf.reduce_max(values), 0.0)  # without values -inf and inf
    return tf.where(largest > 0, largest, tf.minimum(tf.reduce_min(values), 0.0))
