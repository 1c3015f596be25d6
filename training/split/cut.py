"""The cut of a model between its tables and its dense arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras

from training.errors import TrainingError
from training.private import kept_histories, layers_of, node_of
from training.tables.shared_table import TABLES


@dataclass(frozen=True)
class SplitModel:
    """Two models that share the layers of one, and are equivalent to it when run in sequence.

    Attributes:
        lookup: from the model's inputs to a list of tensors: all tables, and their predecessors.
        tower: from that list to the model's outputs; XLA can compile it.
    """

    lookup: keras.Model
    tower: keras.Model


def cut(model: keras.Model) -> SplitModel:
    """Cut a functional or sequential model, which is unchanged.

    Raises:
        TrainingError: it has no graph of layers, or nothing remains for the tower.
    """
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        raise TrainingError(
            "Expected a functional model, or a sequential model with an Input, to split its step. "
            f"Received: {model!r} of {type(model).__name__}. Use split=False, if there is "
            "one worker, or wrap it: keras.Model(inputs, model(inputs))."
        )
    lookups = _outside(model)
    border = _border(model, lookups)
    sequential = isinstance(model, keras.Sequential)
    if any(tensor is output for tensor in border for output in model.outputs):
        raise TrainingError(
            "Expected a model with dense layers after its lookups, to split its step. "
            f"Received: {model.name!r}, with an output without any. "
            "Use split=False, if there is one worker."
        )
    _expect_true_shapes(border)
    # Keras would assign an input that the tower shares to the tower, and fail to save the model.
    with kept_histories(model.inputs):
        lookup = keras.Model(model.inputs[0] if sequential else model.input, border)
        # Keras' models give the one output of a list without the list.
        is_alone = sequential or (
            isinstance(model.output, (list, tuple)) and len(model.outputs) == 1
        )
        tower = keras.Model(border, model.outputs[0] if is_alone else model.output)
    return SplitModel(lookup, tower)


def _expect_true_shapes(border: list[Any]) -> None:
    """Refuse tensors of another shape than Keras expects, which a model takes only inside it."""
    for tensor in border:
        layer = node_of(tensor).operation
        # Of texts (N, 1) it computes (N, tokens), and Keras 3 says (N, 1, tokens).
        if isinstance(layer, keras.layers.TextVectorization) and len(tensor.shape) == 3:
            raise TrainingError(
                "Expected layers whose outputs have the shape that Keras expects, to split the step. "
                f"Received: {layer.name}, whose output has the shape (N, tokens) in place of (N, 1, tokens). "
                "Put keras.layers.Reshape(()) before it, or use split=False, if there is one worker."
            )


def is_lookup(layer: Any) -> bool:
    """Whether a layer, or one inside it, has a table or cannot be compiled by XLA."""
    if not isinstance(layer, keras.layers.Layer):
        return False
    inner = [part for part in layers_of(layer) if part is not layer]
    return (
        isinstance(layer, TABLES)
        or not layer.supports_jit
        or any(is_lookup(part) for part in inner)
    )


def is_compilable(parts: SplitModel) -> bool:
    """Whether XLA can compile the lookups: of single ids that are not checked, on one device.

    XLA compiles for fixed shapes, which lists change in each batch; it drops checks silently. It
    knows no exchange with other workers, which lookups in divided tables need.
    """
    # A table too large for the GPU may be on the host.
    devices = {
        variable.value.device for variable in (*parts.lookup.variables, *parts.tower.weights)
    }
    return (
        len(devices) == 1
        and not parts.lookup.non_trainable_variables
        and all(map(_compiles, _ancestry(*parts.lookup.outputs)))
    )


def _compiles(node: Any) -> bool:
    operation = node.operation
    parts = layers_of(operation) if isinstance(operation, keras.layers.Layer) else [operation]
    return all(
        getattr(part, "supports_jit", True)  # False of layers that have been called with lists
        and not getattr(part, "validate_ids", False)
        and not getattr(part, "is_divided", False)
        for part in parts
    )


def _outside(model: keras.Model) -> set[int]:
    """The nodes, by id, that contain a lookup or lead to one."""
    lookups = [node for node in _ancestry(*model.outputs) if is_lookup(node.operation)]
    before = _ancestry(*(tensor for node in lookups for tensor in node.input_tensors))
    return {id(node) for node in (*lookups, *before)}


def _border(model: keras.Model, outside: set[int]) -> list[Any]:
    """The tensors that the tower takes, each once, in a fixed order."""
    border: dict[int, Any] = {}
    for output in model.outputs:
        needed = [output] + [
            tensor
            for node in _ancestry(output)
            if id(node) not in outside
            for tensor in node.input_tensors
        ]
        for tensor in needed:
            node = node_of(tensor)
            if node.is_input or id(node) in outside:
                border[id(tensor)] = tensor
    return list(border.values())


def _ancestry(*tensors: Any) -> Iterator[Any]:
    """The nodes that tensors depend on, their own too, each once."""
    waiting, node_ids = [node_of(tensor) for tensor in tensors], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in node_ids:
            node_ids.add(id(node))
            yield node
            waiting.extend(node_of(tensor) for tensor in node.input_tensors)
