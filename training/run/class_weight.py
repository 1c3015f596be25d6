"""Weights of rows in the loss, by their label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from training.errors import TrainingError
from workflow.errors import listed
from workflow.schema.alike import did_you_mean
from workflow.schema.python_number import python_number


def weighted(
    dataset: tf.data.Dataset, class_weight: Mapping[Any, Any], outputs: Sequence[str] = ()
) -> tf.data.Dataset:
    """The dataset with a weight for each row.

    Keras' own argument reads ahead on the host, which a loader on a GPU does not allow.

    Args:
        dataset: of pairs (x, y) of features and one label (N, 1), or several.
        class_weight: label -> weight; other labels have weight 1. Of several, name -> such weights.
        outputs: the names of several labels, whose order counts if the data does not name them.

    Raises:
        TrainingError: rows that already have weights.

    Example:
        >>> data = tf.data.Dataset.from_tensors(({"userId": [[5], [6]]}, [[0], [1]]))
        >>> _, _, weights = next(iter(weighted(data, {1: 20.0})))
        >>> weights.numpy().tolist()
        [[1.0], [20.0]]
    """

    @tf.autograph.experimental.do_not_convert  # it would wrap the error
    def weigh(*batch: Any) -> tuple[Any, Any, Any]:
        return with_weights(batch, class_weight, outputs)

    return dataset.map(weigh)


def with_weights(
    batch: Sequence[Any], class_weight: Mapping[Any, Any], outputs: Sequence[str] = ()
) -> tuple[Any, Any, Any]:
    """The triple (x, y, weights) of a pair (x, y): see `weighted`."""
    if len(batch) > 2:
        raise TrainingError(
            "Expected pairs (x, y) in train_data, to weigh rows by class_weight. "
            "Received: triples, which have weights already. Leave one of the two out."
        )
    x, y = batch
    if isinstance(y, Mapping):
        return x, y, {name: _weights(y[name], class_weight.get(name, {})) for name in y}
    if isinstance(y, (list, tuple)) and len(outputs) > 1:
        pairs = zip(y, outputs, strict=True)
        return x, y, tuple(_weights(label, class_weight.get(name, {})) for label, name in pairs)
    return x, y, _weights(y, class_weight)


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


def _weights(y: Any, class_weight: Mapping[Any, Any]) -> tf.Tensor:
    """The weight of each row of a label."""
    weights = tf.ones_like(y, tf.float32)
    for label, weight in class_weight.items():
        weights = tf.where(tf.equal(tf.cast(y, tf.float32), float(label)), weight, weights)
    return weights
