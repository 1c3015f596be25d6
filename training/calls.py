"""Calls of layers in a model, also within models inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras

from training.private import layers_of, node_of, nodes_of


class Calls:
    """The calls that make the outputs of a model, and of functional models inside it.

    A layer keeps its calls in all models that share it, such as the part of a model that the split step
    copies.

    Args:
        model: any model.
    """

    def __init__(self, model: keras.Model) -> None:
        self._nodes: set[int] = set()
        self._given: dict[int, list[Any]] = {}
        models = [part for part in layers_of(model) if isinstance(part, keras.Model)]
        waiting = [tensor for part in models for tensor in getattr(part, "outputs", None) or ()]
        outer = {id(node_of(tensor)) for tensor in getattr(model, "inputs", None) or ()}
        while waiting:
            node = node_of(waiting.pop())
            if id(node) in self._nodes:
                continue
            self._nodes.add(id(node))
            waiting += node.input_tensors
            inner = node.operation
            if isinstance(inner, keras.Model) and getattr(inner, "outputs", None):
                for own, given in _pairs(inner, node):
                    if (place := id(node_of(own))) not in outer:  # which both may share
                        self._given.setdefault(place, []).append(given)

    def of(self, layer: keras.Layer) -> list[Any]:
        """The calls of a layer."""
        return [node for node in nodes_of(layer) if id(node) in self._nodes]

    def given(self, node: Any) -> list[Any]:
        """The tensors that a call takes; of an input of an inner model those that it is called with."""
        return [*node.arguments.keras_tensors, *self._given.get(id(node), ())]

    def inputs(self, tensors: Iterable[Any], hands_on: Callable[[Any], bool]) -> Iterator[str]:
        """The names of the model's inputs from which tensors come.

        Args:
            tensors: the tensors.
            hands_on: whether to go on from the result of an operation to what it takes. Inputs of inner
                models are passed in any case.
        """
        waiting = list(tensors)
        node_ids: set[int] = set()
        while waiting:
            node = node_of(waiting.pop())
            if id(node) in node_ids:
                continue
            node_ids.add(id(node))
            is_input, given = isinstance(node.operation, keras.layers.InputLayer), self.given(node)
            if is_input and not given:
                yield node.operation.name
            elif is_input or hands_on(node.operation):
                waiting += given


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
