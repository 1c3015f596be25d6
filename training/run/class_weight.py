"""Weights of rows in the loss, by their label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training.errors import TrainingError


def weighted(dataset: tf.data.Dataset, class_weight: Mapping[int, float]) -> tf.data.Dataset:
    """The dataset with a weight for each row.

    Keras' own argument reads ahead on the host, which a loader on a GPU does not allow.

    Args:
        dataset: of pairs (x, y) of features and one label (N, 1).
        class_weight: label -> weight; other labels have weight 1.

    Raises:
        TrainingError: rows that already have weights.

    Example:
        >>> data = tf.data.Dataset.from_tensors(({"userId": [[5], [6]]}, [[0], [1]]))
        >>> _, _, weights = next(iter(weighted(data, {1: 20.0})))
        >>> weights.numpy().tolist()
        [[1.0], [20.0]]
    """

    @tf.autograph.experimental.do_not_convert  # it would wrap the error
    def weigh(x: Any, y: Any, *rest: Any) -> tuple[Any, Any, tf.Tensor]:
        if rest:
            raise TrainingError(
                "Expected pairs (x, y) in train_data, to weigh rows by class_weight. "
                "Received: triples, which have weights already. Leave one of the two out."
            )
        weights = tf.ones_like(y, tf.float32)
        for label, weight in class_weight.items():
            weights = tf.where(tf.equal(tf.cast(y, tf.float32), float(label)), weight, weights)
        return x, y, weights

    return dataset.map(weigh)


def check_class_weight(class_weight: Mapping[int, float]) -> None:
    """Raise TrainingError unless it has weights of at least zero, for labels that are numbers."""
    is_mapping = isinstance(class_weight, Mapping)
    numbers = [*class_weight, *class_weight.values()] if is_mapping else []
    if (
        not numbers
        or not all(isinstance(n, (int, float)) for n in numbers)
        or min(class_weight.values()) < 0
    ):
        raise TrainingError(
            "Expected class_weight as a dictionary of label -> weight of at least 0. "
            f"Received: {class_weight!r}. For example {{0: 1.0, 1: 20.0}}."
        )
