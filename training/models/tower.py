"""The parts that the models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from training.layers import DenseFeatures
from training.models.columns import Columns


def embedded(
    columns: Columns, inputs: Mapping[str, Any], limit: int | None, combiner: str, initializer: Any
) -> Any:
    """The columns' embeddings, no wider than the limit, and their numbers, side by side."""
    layer = DenseFeatures(columns.capped(limit), columns.continuous, combiner, initializer)
    return layer(inputs)


def dense(x: Any, widths: Sequence[int], dropout: float = 0.0) -> Any:
    """Dense layers with relu, each followed by dropout, if any."""
    for width in widths:
        x = keras.layers.Dense(width, activation="relu")(x)
        x = keras.layers.Dropout(dropout)(x) if dropout else x
    return x


def probability(x: Any, name: str) -> Any:
    """One probability a row.

    In mixed precision it still has to be float32, for the loss and the server.
    """
    return keras.layers.Dense(1, activation="sigmoid", name=name, dtype="float32")(x)
