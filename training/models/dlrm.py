"""DLRM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.layers import DenseFeatures, DotProductInteraction
from training.models.columns import Features, IdDtype, columns_of
from training.models.tower import assembled, dense, probability
from workflow.schema.python_number import takes_numpy_numbers


@takes_numpy_numbers
def dlrm(
    features: Features,
    continuous: Iterable[str] = (),
    *,
    embedding_dim: int = 64,
    bottom: Sequence[int] = (512, 256),
    top: Sequence[int] = (1024, 1024, 512, 256),
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
    shard: str | None = None,
) -> keras.Model:
    """Dot products of each pair of vectors: the embeddings and one of the continuous columns.

    Source: M. Naumov et al., Deep Learning Recommendation Model for Personalization and
    Recommendation Systems, 2019.

    Args:
        features: as in `mlp`; so are the inputs and further arguments. Widths are ignored.
        continuous: see `mlp`.
        embedding_dim: the width of every embedding.
        bottom: widths of the hidden layers from the continuous columns to their vector.
        top: widths of the hidden layers from the products to the output.
        id_dtypes: see `mlp`.
        combiner: see `mlp`.
        embeddings_initializer: see `mlp`.
        dropout: see `mlp`; applies to the top layers.
        output_name: see `mlp`.
        shard: how the tables are divided among workers: see `layers.EmbeddingCollection`.

    Returns:
        A functional model, not compiled.

    Raises:
        TrainingError: see `mlp`.

    Example:
        >>> model = dlrm({"userId": (1000, 16), "movieId": (500, 16)}, ["age"], embedding_dim=8)
    """
    columns = columns_of(features, continuous, id_dtypes)
    inputs = columns.inputs()
    vectors = DenseFeatures(
        columns.of_width(embedding_dim),
        (),
        combiner,
        embeddings_initializer,
        "stack",
        shard=shard,
        name="features",
    )(inputs)
    parts = []
    if columns.continuous:
        numbers = keras.layers.Concatenate(name="bottom_inputs")(
            [inputs[name] for name in columns.continuous]
        )
        parts.append(dense(numbers, [*bottom, embedding_dim], name="bottom"))
        row = keras.layers.Reshape((1, embedding_dim), name="bottom_row")(parts[0])
        vectors = keras.layers.Concatenate(axis=1, name="interaction_inputs")([row, vectors])
    parts.append(DotProductInteraction(name="interaction")(vectors))
    x = keras.layers.Concatenate(name="top_inputs")(parts) if len(parts) > 1 else parts[0]
    return assembled(
        "dlrm", columns, inputs, probability(dense(x, top, dropout, "top"), output_name)
    )
