"""A multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.models.columns import Features, IdDtype, columns_of
from training.models.tower import assembled, dense, embedded, probability
from workflow.schema.python_number import takes_numpy_numbers


@takes_numpy_numbers
def mlp(
    features: Features,
    continuous: Iterable[str] = (),
    *,
    hidden: Sequence[int] = (128, 128, 128),
    max_embedding_dim: int | None = None,
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
    shard: str | None = None,
) -> keras.Model:
    """A multi-layer perceptron over embeddings, with one sigmoid output.

    The inputs match the loader's batches: `userId` (N, 1) for a single value, and for a list
    `genres` the pair `genres__values` (nnz, 1), `genres__nnzs` (N, 1), nested as `{"userId": ...,
    "genres": (values, nnzs)}`.

    Args:
        features: a workflow's output schema, whose dtypes the inputs get; or the result of
            `workflow.get_embedding_sizes`: a dictionary of column name -> (cardinality, width) when
            all columns hold single values, else a pair of dictionaries, for single values and for
            lists.
        continuous: names of float32 columns of shape (N, 1), in addition to the schema's.
        hidden: the widths of the hidden layers, each with relu.
        max_embedding_dim: the greatest width of an embedding; narrower ones are unchanged.
        id_dtypes: dtypes of inputs that differ from the schema's, or without a schema from "int32"
            (single values) or ("int64", "int64") (values and row lengths of a list).
        combiner: how a list's vectors become one: "sum", "mean" or "sqrtn".
        embeddings_initializer: a Keras initializer for the tables.
        dropout: the share of each hidden layer's outputs dropped in training.
        output_name: the name of the output layer, and of the served output.
        shard: how the tables are divided among workers: see `layers.EmbeddingCollection`.

    Returns:
        A functional model, not compiled.

    Raises:
        TrainingError: no columns, or an invalid width, cardinality or dtype.

    Example:
        >>> model = mlp(({"userId": (162542, 512)}, {"genres": (21, 16)}), max_embedding_dim=32)
        >>> model.compile("adam", "binary_crossentropy")
    """
    columns = columns_of(features, continuous, id_dtypes)
    inputs = columns.inputs()
    x = embedded(columns, inputs, max_embedding_dim, combiner, embeddings_initializer, shard=shard)
    return assembled("mlp", columns, inputs, probability(dense(x, hidden, dropout), output_name))
