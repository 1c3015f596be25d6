"""Building blocks that the models share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from training.errors import TrainingError
from training.layers import DenseFeatures
from training.layers.records_fits import record_fits
from training.models.columns import Columns
from workflow.schema.python_number import python_number


def embedded(
    columns: Columns,
    inputs: Mapping[str, Any],
    limit: int | None,
    combiner: str,
    initializer: Any,
    shard: str | None = None,
) -> Any:
    """The columns' embeddings, with capped widths, and their numbers, side by side."""
    layer = DenseFeatures(
        columns.capped(limit),
        columns.continuous,
        combiner,
        initializer,
        shard=shard,
        name="features",
    )
    return layer(inputs)


def dense(x: Any, widths: Sequence[int], dropout: float = 0.0, name: str = "hidden") -> Any:
    """The result of `dense_layers`."""
    for layer in dense_layers(widths, dropout, name):
        x = layer(x)
    return x


def dense_layers(widths: Sequence[int], dropout: float, name: str) -> list[Any]:
    """Dense layers with relu, named `hidden_1` and so on, each followed by dropout, if any.

    Raises:
        TrainingError: as `check_widths`.
    """
    layers: list[Any] = []
    for number, width in enumerate(check_widths(widths, dropout, name), 1):
        layers.append(keras.layers.Dense(width, activation="relu", name=f"{name}_{number}"))
        if dropout:
            layers.append(keras.layers.Dropout(dropout, name=f"{name}_{number}_dropout"))
    return layers


def check_widths(widths: Sequence[int], dropout: float, name: str) -> list[int]:
    """The widths as Python's integers.

    Raises:
        TrainingError: widths that are no list of whole numbers from 1, or a dropout that is not from 0 to 1.
    """
    is_list = isinstance(widths, (Sequence, np.ndarray))
    numbers = [python_number(width) for width in widths] if is_list else []
    are_widths = is_list and all(type(number) is int and number > 0 for number in numbers)
    is_share = isinstance(dropout, (int, float)) and 0 <= dropout <= 1
    if not are_widths or not is_share:
        raise TrainingError(
            "Expected widths of layers as a list of whole numbers from 1, such as [128, 64], and dropout from "
            f"0 to 1. Received: {name}={widths!r}, dropout={dropout!r}."
        )
    return numbers


def probability(x: Any, name: str) -> Any:
    """One probability a row.

    Always float32, even in mixed precision, for the loss and the server.
    """
    return keras.layers.Dense(1, activation="sigmoid", name=name, dtype="float32")(x)


def assembled(name: str, columns: Columns, inputs: Mapping[str, Any], output: Any) -> keras.Model:
    """The functional model, which records the fits of its columns, if they are known.

    Raises:
        TrainingError: a column has the name of a layer.
    """
    try:
        model = keras.Model(inputs, output, name=name)
    except ValueError as error:
        raise TrainingError(
            f"Expected columns whose names differ from those of the layers of {name!r}. "
            f"Received: {error} Rename the column (ops.Rename), or the output (output_name)."
        ) from error
    record_fits(model, columns.fits)
    return model
