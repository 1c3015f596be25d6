"""Wide & Deep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.layers import LinearFeatures
from training.models.columns import Features, IdDtype, columns_of
from training.models.tower import assembled, dense, embedded
from workflow.schema.python_number import takes_numpy_numbers


@takes_numpy_numbers
def wide_and_deep(
    features: Features,
    continuous: Iterable[str] = (),
    *,
    hidden: Sequence[int] = (1024, 512, 256),
    max_embedding_dim: int | None = None,
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
    shard: str | None = None,
) -> keras.Model:
    """A linear model and a multi-layer perceptron of the same columns, summed.

    Source: H.-T. Cheng et al., Wide & Deep Learning for Recommender Systems, DLRS 2016.

    Args:
        features: as in `mlp`; so are the inputs and further arguments.
        continuous: see `mlp`.
        hidden: the widths of the deep part's hidden layers.
        max_embedding_dim: see `mlp`.
        id_dtypes: see `mlp`.
        combiner: see `mlp`; applies to the deep part, while the wide part sums.
        embeddings_initializer: for the deep part's tables; the wide part's start at zero.
        dropout: see `mlp`.
        output_name: see `mlp`.
        shard: how the tables of the deep part are divided among workers: see
            `layers.EmbeddingCollection`.

    Returns:
        A functional model, not compiled.

    Raises:
        TrainingError: see `mlp`.

    Example:
        >>> model = wide_and_deep({"userId": (1000, 16), "movieId": (500, 16)}, ["age"])
    """
    columns = columns_of(features, continuous, id_dtypes)
    inputs = columns.inputs()
    wide = LinearFeatures(columns.cardinalities, columns.continuous, name="wide")(inputs)
    deep = embedded(
        columns, inputs, max_embedding_dim, combiner, embeddings_initializer, shard=shard
    )
    deep = keras.layers.Dense(1, name="deep", dtype="float32")(dense(deep, hidden, dropout))
    logit = keras.layers.Add(name="logit", dtype="float32")([wide, deep])
    output = keras.layers.Activation("sigmoid", name=output_name, dtype="float32")(logit)
    return assembled("wide_and_deep", columns, inputs, output)
