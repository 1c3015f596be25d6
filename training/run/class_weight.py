"""Weights of rows in the loss, by their label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.run.label_values import function_of
from workflow.errors import listed
from workflow.schema.alike import did_you_mean
from workflow.schema.python_number import python_number

_ONE_HOT = (
    keras.losses.categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_hinge,
)


def weighted(
    dataset: tf.data.Dataset, class_weight: Mapping[Any, Any], losses: Mapping[str, Any]
) -> tf.data.Dataset:
    """The dataset with a weight for each row.

    Keras' own argument reads ahead on the host, which a loader on a GPU does not allow.

    Args:
        dataset: of pairs (x, y) of features and one label (N, 1), or several.
        class_weight: label -> weight; other labels have weight 1. Of several, name -> such weights.
        losses: the loss of each output by its name, in the order of labels without names.

    Raises:
        TrainingError: rows that already have weights, or labels that are no classes.

    Example:
        >>> data = tf.data.Dataset.from_tensors(({"userId": [[5], [6]]}, [[0], [1]]))
        >>> _, _, weights = next(iter(weighted(data, {1: 20.0}, {"": "binary_crossentropy"})))
        >>> weights.numpy().tolist()
        [[1.0], [20.0]]
    """

    @tf.autograph.experimental.do_not_convert  # it would wrap the error
    def weigh(*batch: Any) -> tuple[Any, Any, Any]:
        return with_weights(batch, class_weight, losses)

    return dataset.map(weigh)


def with_weights(
    batch: Sequence[Any], class_weight: Mapping[Any, Any], losses: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
    """The triple (x, y, weights) of a pair (x, y): see `weighted`."""
    if len(batch) > 2:
        raise TrainingError(
            "Expected pairs (x, y) in train_data, to weigh rows by class_weight. "
            "Received: triples, which have weights already. Leave one of the two out."
        )
    x, y = batch

    def weigh(name: str, label: Any) -> tf.Tensor:
        if (
            len(losses) == 1
        ):  # whose label has a name that a model of a class of its own does not tell
            return _weights(label, class_weight, *losses.values())
        return _weights(label, class_weight.get(name, {}), losses[name])

    if isinstance(y, Mapping):
        return x, y, {name: weigh(name, y[name]) for name in y}
    if isinstance(y, (list, tuple)):
        return x, y, tuple(weigh(*pair) for pair in zip(losses, y, strict=True))
    return x, y, weigh(next(iter(losses)), y)


def check_class_weight(class_weight: Any, outputs: Sequence[str]) -> None:
    """Raise TrainingError unless it has weights of at least zero for labels, of each of several outputs."""
    if len(outputs) > 1:
        of_outputs = isinstance(class_weight, Mapping) and len(class_weight) > 0
        unknown = [name for name in class_weight if name not in outputs] if of_outputs else []
        if not of_outputs or unknown:
            raise TrainingError(
                f"Expected class_weight of each output by its name, {listed(outputs)}. "
                f"Received: {class_weight!r}.{did_you_mean(unknown, outputs)} "
                f"For example {{{outputs[0]!r}: {{0: 1.0, 1: 20.0}}}}."
            )
        for weights in class_weight.values():
            check_class_weight(weights, ())
        return
    is_mapping = isinstance(class_weight, Mapping)
    numbers = [*class_weight, *class_weight.values()] if is_mapping else []
    if (
        not numbers
        or not all(isinstance(python_number(n), (int, float)) for n in numbers)
        or not all(0 <= weight < math.inf for weight in class_weight.values())
    ):
        raise TrainingError(
            "Expected class_weight as a dictionary of label -> finite weight of at least 0. "
            f"Received: {class_weight!r}. For example {{0: 1.0, 1: 20.0}}."
        )


def _weights(y: Any, class_weight: Mapping[Any, Any], loss: Any) -> tf.Tensor:
    """The weight of each row of a label, or of each of its steps."""
    classes, function = tf.convert_to_tensor(y), function_of(loss)
    if function in _ONE_HOT:
        classes = tf.argmax(classes, axis=-1)
    elif function is not keras.losses.sparse_categorical_crossentropy and (
        class_weight and classes.shape.rank != 1 and classes.shape[-1] != 1
    ):
        shape = ", ".join("N" if n is None else str(n) for n in classes.shape)
        raise TrainingError(
            "Expected labels of one class each, to weigh them by class_weight. Received: labels of shape "
            f"({shape}) for {getattr(function, '__name__', function)}, which has one loss for all numbers "
            "of the last axis. Give weights of your own, as triples (x, y, weights)."
        )
    weights = tf.ones_like(classes, tf.float32)
    for label, weight in class_weight.items():
        weights = tf.where(tf.equal(tf.cast(classes, tf.float32), float(label)), weight, weights)
    return weights
