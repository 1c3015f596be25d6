"""Check that a batch has one label for each output of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from loader import KerasSequenceLoader
from training.errors import TrainingError
from workflow import Tags


def check_labels(model: keras.Model, y: Any, weight: Any, data: Any, argument: str) -> None:
    """Compare labels with a model's outputs, by number and, where both have names, by name.

    The outputs of a subclassed model are unknown before its first call; they are left to Keras.

    Args:
        model: the model to train.
        y: the labels of a batch.
        weight: the weights of its rows, or None.
        data: the source of the batch; a loader provides the name of a single label.
        argument: the caller's name for the data.

    Raises:
        TrainingError: too many or too few labels, a label whose name no output has, or labels or
            weights by position for outputs that have names, which Keras takes in the order of the names.

    Example:
        >>> import numpy as np
        >>> model = keras.Model(age := keras.Input((1,), name="age"), {"old": age, "young": age})
        >>> check_labels(model, {"old": np.ones(5), "young": np.zeros(5)}, None, None, "train_data")
    """
    outputs = getattr(model, "output", None)
    if outputs is None:
        return
    names = output_names(model)
    count = len(keras.tree.flatten(outputs))
    named_alike = not isinstance(y, Mapping) or set(y) == set(names)
    if named_alike and len(keras.tree.flatten(y)) == count:
        if isinstance(outputs, Mapping) and count > 1:
            _expect_names(y, "labels", names, argument)
            _expect_names(weight, "weights of rows", names, argument)
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
        if isinstance(outputs, Mapping) and isinstance(y, Mapping) and set(y) < set(names):
            entries = ", ".join(f"{name!r}: model.output[{name!r}]" for name in y)
            remedy += (
                " To train these outputs alone, train a model of them, which shares the weights: "
                f"keras.Model(model.input, {{{entries}}})."
            )
    raise TrainingError(
        f"Expected {labels} in {argument}, as the model has {has}. Received: {_shown(y, data)}. {remedy}"
    )


def _expect_names(values: Any, what: str, names: Sequence[str], argument: str) -> None:
    """Refuse values by position: Keras would pair them with the outputs' names in sorted order."""
    if isinstance(values, (list, tuple)):
        shown = ", ".join(f"{name!r}: ..." for name in names)
        raise TrainingError(
            f"Expected {what} by name in {argument}, as the model's outputs have names. "
            f"Received: {len(values)} without names. Give a dictionary: {{{shown}}}."
        )


def output_names(model: keras.Model, loss: Any = None) -> list[str]:
    """The names under which Keras takes labels; a single output without a structure has none.

    Args:
        model: a model.
        loss: a loss, or those of several outputs, whose names count for a class of the user's.
    """
    outputs = getattr(model, "output", None)
    if outputs is None and isinstance(loss, Mapping) and len(loss) > 1:
        return list(loss)
    if isinstance(outputs, Mapping):
        return list(outputs)
    return list(model.output_names) if isinstance(outputs, (list, tuple)) else []


def output_widths(model: keras.Model) -> dict[str, int | None]:
    """The last dimension of each output, under its name; none of a model without known outputs."""
    outputs = getattr(model, "output", None)
    if not isinstance(outputs, Mapping):
        tensors = keras.tree.flatten(outputs) if outputs is not None else []
        outputs = dict(zip(output_names(model) or [""], tensors, strict=True)) if tensors else {}
    return {name: tensor.shape[-1] for name, tensor in outputs.items()}


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
