"""Calls of layers in a model, also within models inside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from training.private import layers_of, node_of, nodes_of


class Calls:
    """The calls that make a model's outputs.

    A layer keeps its calls in all models that share it, such as the part of a model that the split step
    copies. Of a model that is not functional, these are the calls in the functional models inside it.

    Args:
        model: any model.
    """

    def __init__(self, model: keras.Model) -> None:
        self._nodes: set[int] = set()
        self._given: dict[int, list[Any]] = {}
        roots = [model] if getattr(model, "outputs", None) else layers_of(model)
        waiting = [tensor for root in roots for tensor in getattr(root, "outputs", None) or ()]
        while waiting:
            node = node_of(waiting.pop())
            if id(node) in self._nodes:
                continue
            self._nodes.add(id(node))
            waiting += node.input_tensors
            inner = node.operation
            if isinstance(inner, keras.Model) and getattr(inner, "outputs", None):
                waiting += inner.outputs
                for own, given in _pairs(inner, node):
                    self._given.setdefault(id(node_of(own)), []).append(given)

    def of(self, layer: keras.Layer) -> list[Any]:
        """The calls of a layer."""
        return [node for node in nodes_of(layer) if id(node) in self._nodes]

    def given(self, node: Any) -> list[Any]:
        """The tensors that a call takes; of an input of an inner model those that it is called with."""
        return [*node.arguments.keras_tensors, *self._given.get(id(node), ())]


def _pairs(model: keras.Model, node: Any) -> list[tuple[Any, Any]]:
    """Each input of a functional model, and what one call gives to it."""
    given = next(iter([*node.arguments.args, *node.arguments.kwargs.values()]), None)
    own = model.inputs if isinstance(model, keras.Sequential) else model.input
    if isinstance(given, Mapping) and not isinstance(own, Mapping):
        own = {tensor.name: tensor for tensor in model.inputs}
    if isinstance(given, Mapping):
        names = [name for name in own if name in given]
        own, given = ({name: each[name] for name in names} for each in (own, given))
    pairs = keras.tree.flatten(own), keras.tree.flatten(given)
    return [*zip(*pairs, strict=False)]
