"""Keras' `fit` on several replicas of a `tf.distribute` strategy, where batches contain lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from training.errors import TrainingError
from training.private import replace_build


def count(model: keras.Model) -> int:
    """The number of replicas that a model was made for: 1 outside a strategy's scope.

    Example:
        >>> count(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
        1
    """
    return int(model.distribute_strategy.num_replicas_in_sync)


def install(model: keras.Model) -> None:
    """Let Keras build a model of several replicas from the batch of the first one.

    Keras builds it from the mean over the replicas' batches, which does not exist for lists: their
    numbers of values differ between batches.
    """
    strategy = model.distribute_strategy

    def first_of(iterator: Any) -> Any:
        _, _, batches = next(iter(iterator))
        batch = keras.tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], next(batches)
        )
        _check_whole(batch)
        return batch

    if count(model) > 1:
        replace_build(model, first_of)


def _check_whole(batch: Any) -> None:
    """Raise TrainingError if lists were cut apart, as TensorFlow does to feed replicas."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
    columns = x if isinstance(x, Mapping) else {}
    for name, column in columns.items():
        if not isinstance(column, (tuple, list)):
            continue
        values, total = len(column[0]), int(np.sum(column[1]))
        if values != total:
            raise TrainingError(
                f"Expected whole lists for a replica, as many values as their lengths add up to. "
                f"Received: {values} values for {total} in column {name!r}: fit gives each replica "
                "a part of each batch. Give each a batch: train_data.distribute(strategy)."
            )
