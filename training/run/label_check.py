"""Check that a batch has one label for each output of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from loader import KerasSequenceLoader
from training.errors import TrainingError
from workflow import Tags


def check_labels(model: keras.Model, y: Any, data: Any, argument: str) -> None:
    """Compare labels with a model's outputs, by number and, where both have names, by name.

    The outputs of a subclassed model are unknown before its first call; they are left to Keras.

    Args:
        model: the model to train.
        y: the labels of a batch.
        data: the source of the batch; a loader provides the name of a single label.
        argument: the caller's name for the data.

    Raises:
        TrainingError: too many or too few labels, or a label whose name no output has.

    Example:
        >>> import numpy as np
        >>> model = keras.Model(age := keras.Input((1,), name="age"), {"old": age, "young": age})
        >>> check_labels(model, {"old": np.ones(5), "young": np.zeros(5)}, None, "train_data")
    """
    outputs = getattr(model, "output", None)
    if outputs is None:
        return
    names = _names(model, outputs)
    count = len(keras.tree.flatten(outputs))
    named_alike = not isinstance(y, Mapping) or set(y) == set(names)
    if named_alike and len(keras.tree.flatten(y)) == count:
        return
    if count == 1:
        labels, has = "one label", "one output"
        remedy = "Name the one to learn: KerasSequenceLoader(..., label_names=[...])."
    else:
        labels, has = f"the labels {_listed(names)}", "these outputs"
        remedy = (
            f"Name them in the loader, label_names={names}, or make them in its "
            "map(lambda x, y: (x, {output: label, ...}))."
        )
    raise TrainingError(
        f"Expected {labels} in {argument}, as the model has {has}. Received: {_shown(y, data)}. {remedy}"
    )


def _names(model: keras.Model, outputs: Any) -> list[str]:
    """The names under which Keras takes labels; a single output without a structure has none."""
    if isinstance(outputs, Mapping):
        return list(outputs)
    return list(model.output_names) if isinstance(outputs, (list, tuple)) else []


def _shown(y: Any, data: Any) -> str:
    if isinstance(y, Mapping):
        names = list(y)
    elif isinstance(data, KerasSequenceLoader):
        names = data.input_schema.tagged(Tags.TARGET).names
    else:
        return f"{len(keras.tree.flatten(y))} without names"
    return f"{len(names)}, {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
