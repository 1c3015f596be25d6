"""One tower of a trained model of two."""

from __future__ import annotations

from typing import Any, Literal

import keras

from training.errors import TrainingError
from training.private import kept_histories, node_of, nodes_of

SIDES = ("query", "candidate")


def tower(model: keras.Model, side: Literal["query", "candidate"]) -> keras.Model:
    """One tower of `models.two_tower` as a model of its own, with the same weights.

    Args:
        model: the model of both towers; it is unchanged.
        side: "query" or "candidate".

    Returns:
        A model of that side's columns, with the output `<side>_vector`, float32 (N, width).

    Raises:
        TrainingError: another model, or another side.

    Example:
        >>> sizes = {"userId": (1000, 16), "movieId": (500, 16)}
        >>> model = models.two_tower(sizes, query=["userId"], candidate=["movieId"], width=8)
        >>> tower(model, "query").output_shape
        (None, 8)
    """
    names = [layer.name for layer in getattr(model, "layers", ())]
    if side not in SIDES or f"{side}_vector" not in names:
        raise TrainingError(
            "Expected a model of models.two_tower, and the side query or candidate. Received: "
            f"{model!r:.100}, {side!r}."
        )
    # Behind the first call: the candidate's tower may be called for sampled items as well.
    vector = nodes_of(model.get_layer(f"{side}_vector"))[0].output_tensors[0]
    input_ids = _inputs(vector)
    inputs = {
        name: tensors
        for name, tensors in model.input.items()
        if any(id(part) in input_ids for part in keras.tree.flatten(tensors))
    }
    with kept_histories(model.inputs):
        return keras.Model(inputs, vector, name=f"{side}_tower")


def _inputs(tensor: Any) -> set[int]:
    """The inputs, by id, that a tensor depends on."""
    waiting, node_ids = [tensor], set()
    input_ids: set[int] = set()
    while waiting:
        node = node_of(last := waiting.pop())
        if node.is_input:
            input_ids.add(id(last))
        elif id(node) not in node_ids:
            node_ids.add(id(node))
            waiting.extend(node.input_tensors)
    return input_ids
