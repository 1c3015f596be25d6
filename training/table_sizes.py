"""Tables of a Keras model, and the columns whose ids they look up.

For an id beyond a table Keras raises an error on a CPU and returns zeros on a GPU, and the layers
of `training` return the vector for unknown ids; so the sizes are compared before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import keras

from training.layers import EmbeddingBag
from training.private import layers_of, node_of, nodes_of
from training.tables.shared_table import SharedTable
from workflow.schema.schema import ColumnSchema

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
    for layer in layers_of(model):
        if isinstance(layer, SharedTable):
            for column, rows in layer.cardinalities.items():
                yield layer.name, column, rows
        elif isinstance(layer, keras.layers.Embedding | EmbeddingBag):
            for name in _sources(layer):
                yield layer.name, name, layer.input_dim


def _sources(layer: keras.Layer) -> Iterator[str]:
    """The inputs that reach a layer of a functional model unchanged."""
    for use in nodes_of(layer):
        todo = list(use.arguments.keras_tensors)
        while todo:
            node = node_of(todo.pop())
            if isinstance(node.operation, keras.layers.InputLayer):
                yield node.operation.name
            elif type(node.operation).__name__ in _HANDING_ON:
                todo += node.arguments.keras_tensors


def id_count(column: ColumnSchema) -> int:
    """The number of ids of a column, which start from 0; 0 if it is no column of ids.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["user"] >> ops.Categorify()).fit({"user": [7, 9]})
        >>> id_count(workflow.output_schema["user"])  # with those for padding, null and unknown
        5
    """
    largest = column.properties.get("domain", {}).get("max")
    if not column.info.is_integer:
        return 0
    return int(column.properties.get("cardinality", 0) if largest is None else largest + 1)


def too_small(column: str, count: int, received: str) -> str:
    """The error text for a table that lacks rows for some of a column's ids.

    Args:
        column: the column of ids.
        count: the number of ids.
        received: a whole sentence.
    """
    return (
        f"Expected an embedding of {count} rows or more for {column!r}, whose ids are 0 to {count - 1}. "
        f"Received: {received} Take its input_dim from workflow.get_embedding_sizes, which "
        f"gives {count} for {column!r}, and train that model."
    )
