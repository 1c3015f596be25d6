"""Tables of a Keras model, and the columns whose ids they look up.

For an id beyond a table Keras raises an error on a CPU and returns zeros on a GPU, and the layers
of `training` return the vector for unknown ids; so the sizes are compared before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import keras

from training.calls import Calls
from training.layers import EmbeddingBag
from training.private import layers_of, node_of
from training.tables.shared_table import SharedTable

# Layers that pass ids on unchanged.
_HANDING_ON = (
    *("Cast", "ExpandDims", "Flatten", "GetItem", "Identity", "Reshape", "Squeeze", "Transpose"),
)


def tables_of(model: keras.Model) -> Iterator[tuple[str, str, int]]:
    """The layer, the input and the rows of each table whose input can be determined.

    Example:
        >>> user = keras.Input((1,), name="user", dtype="int64")
        >>> vectors = keras.layers.Embedding(30, 4, name="users")(user)
        >>> list(tables_of(keras.Model(user, vectors)))
        [('users', 'user', 30)]
    """
    calls = Calls(model)
    for layer in layers_of(model):
        if isinstance(layer, SharedTable):
            for column, rows in layer.cardinalities.items():
                yield layer.name, column, rows
        elif isinstance(layer, keras.layers.Embedding | EmbeddingBag):
            for name in inputs_of(layer, calls):
                yield layer.name, name, layer.input_dim


def inputs_of(layer: keras.Layer, calls: Calls) -> Iterator[str]:
    """The inputs that reach a layer of a functional model unchanged.

    Args:
        layer: a layer.
        calls: those of the model.
    """
    for use in calls.of(layer):
        tensors = calls.given(use)
        if isinstance(layer, keras.layers.Embedding):  # others that it may take are weights
            tensors = tensors[:1]
        yield from calls.inputs(tensors, lambda part: type(part).__name__ in _HANDING_ON)


def columns_of_inputs(model: keras.Model) -> dict[str, str]:
    """The column of each input, which several inputs of a list share; none of a model without inputs."""
    inputs = getattr(model, "input", None)
    if not isinstance(inputs, Mapping):
        return {each.name: each.name for each in getattr(model, "inputs", None) or ()}
    return {
        node_of(tensor).operation.name: column
        for column, tensors in inputs.items()
        for tensor in keras.tree.flatten(tensors)
    }
