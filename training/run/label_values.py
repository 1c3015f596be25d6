"""Labels that a loss would change or cannot learn, and negative weights, found inside the steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.private import mask_of

CHANCES = (keras.losses.binary_crossentropy, keras.losses.binary_focal_crossentropy)
NUMBERED = keras.losses.sparse_categorical_crossentropy


class LabelValues:
    """A label of the steps so far that does not suit its loss, or a negative weight of a row.

    Keras itself cuts the label 1.5 of a class to 1, and lets a negative loss grow without end.
    NaN is left to the check of the loss, except of a class, which would become a number.

    Args:
        losses: the loss of each output, or its losses, by its name, which is "" of the only one.
        classes: the width of each output by its name; a class beyond it is a loss of NaN on a GPU.

    Example:
        >>> labels = LabelValues({"": "sparse_categorical_crossentropy"}, {"output": 3})
        >>> labels.look(tf.constant([[1.0], [1.5]]), None)
        >>> labels.check()
        Traceback (most recent call last):
        training.errors.TrainingError: Expected whole numbers as labels for ... Received: 1.5. ...
    """

    def __init__(self, losses: Mapping[str, Any], classes: Mapping[str, int | None]) -> None:
        self._names = list(losses)
        self._losses = [
            (name, function_of(part), getattr(part, "ignore_class", None))
            for name, loss in losses.items()
            for part in keras.tree.flatten(loss)
        ]
        if len(losses) == 1:  # whose name is not that of the output
            classes = dict.fromkeys(losses, next(iter(classes.values()), None))
        self._classes = classes
        # Where the steps compute: a step that copied it to the host would wait for the GPU. The host reads
        # it after each call of steps. Zero is never wrong.
        self._found = tf.Variable(tf.zeros([len(self._losses) + 1]), trainable=False)

    def look(self, y: Any, weight: Any, y_pred: Any = None) -> None:
        """Keep an unsuitable label of each output, and a negative weight.

        Args:
            y: labels.
            weight: the weights of rows, or of their steps; a label whose weight is 0 may have any value.
            y_pred: predictions, whose masks of Keras leave out labels as well.
        """
        labels, *counted = (
            self._by_output(part) for part in (y, weight, keras.tree.map_structure(mask_of, y_pred))
        )
        unsuitable = [
            self._unsuitable(name, loss, ignored, labels[name], [each[name] for each in counted])
            for name, loss, ignored in self._losses
        ]
        numbers = [tf.cast(w, tf.float32) for w in keras.tree.flatten(weight) if w is not None]
        weights = [_extreme(w, w < 0) for w in numbers]
        now = tf.stack([*unsuitable, tf.reduce_min(tf.stack([0.0, *weights]))])
        self._found.assign(tf.where(now != 0, now, self._found))

    def check(self) -> None:
        """Raise TrainingError if one was found."""
        *labels, weight = self._found.numpy().tolist()
        for (name, loss, _), label in zip(self._losses, labels, strict=True):
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
                "least value. Clip them: ops.Clip(min_value=0) in the workflow, or tf.maximum(weights, 0.0)."
            )

    def _by_output(self, part: Any) -> dict[str, Any]:
        """A part of a batch by the names of the outputs; one that is given alone is for each of them."""
        if isinstance(part, Mapping) and not len(part) == len(self._names) == 1:
            return {name: part.get(name) for name in self._names}
        parts = keras.tree.flatten(part)
        if len(parts) < len(self._names):
            parts = [parts[0]] * len(self._names)
        return dict(zip(self._names, parts, strict=False))

    def _unsuitable(
        self, name: str, loss: Any, ignored: int | None, label: Any, counted: Sequence[Any]
    ) -> Any:
        """A label that the loss does not take, else 0."""
        count = self._classes.get(name)
        if label is None or loss not in (*CHANCES, NUMBERED):
            return 0.0
        number = tf.cast(label, tf.float32)
        wrong = number != tf.floor(number) if loss is NUMBERED else (number < 0) | (number > 1)
        for weight in counted:
            if weight is not None:
                wrong &= _as_labels(weight, number) != 0
        if loss is NUMBERED and count is not None:  # its loss is NaN, which no weight removes
            wrong |= ~((number >= 0) & (number < count))
        if ignored is not None:
            wrong &= number != ignored
        return _extreme(number, wrong)


def no_such_class(count: int, received: str) -> TrainingError:
    """The error of a label that is no class of an output with `count` of them."""
    return TrainingError(
        f"Expected labels from 0 to {count - 1}, as the output has {count} classes. Received: {received}. "
        "Give the output layer a unit for each class, numbered from 0: for ids of ops.Categorify their "
        "cardinality, a property of the label's column in workflow.output_schema. To leave out rows of one "
        "label: keras.losses.SparseCategoricalCrossentropy(ignore_class=label)."
    )


def function_of(loss: Any) -> Any:
    """Keras' function of a loss or of its name; None or the loss itself if it is none of Keras'."""
    keras_loss = None if loss is None else keras.losses.get(loss)
    return getattr(keras_loss, "fn", keras_loss)


def _as_labels(weight: Any, label: tf.Tensor) -> tf.Tensor:
    """A weight or mask with the axes of the labels, of which Keras drops or adds the last."""
    weight, more = tf.cast(weight, tf.float32), len(label.shape) - len(weight.shape)
    return weight[..., 0] if more < 0 else weight[(..., *[tf.newaxis] * more)]


def _extreme(values: Any, chosen: Any) -> Any:
    """The largest of the chosen values, or the least if none is above 0; 0 if none is chosen."""
    values = tf.where(chosen, tf.cast(values, tf.float32), 0.0)
    largest = tf.maximum(tf.reduce_max(values), 0.0)  # without values -inf and inf
    return tf.where(largest > 0, largest, tf.minimum(tf.reduce_min(values), 0.0))
