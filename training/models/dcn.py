"""DCN-v2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.layers import CrossNetwork
from training.models.columns import Features, IdDtype, columns_of
from training.models.tower import assembled, dense, embedded, probability
from workflow.schema.python_number import takes_numpy_numbers


@takes_numpy_numbers
def dcn(
    features: Features,
    continuous: Iterable[str] = (),
    *,
    cross_layers: int = 3,
    rank: int | None = None,
    hidden: Sequence[int] = (1024, 512, 256),
    max_embedding_dim: int | None = None,
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
    shard: str | None = None,
) -> keras.Model:
    """A cross network and a multi-layer perceptron, side by side: DCN-v2, parallel.

    Source: R. Wang et al., DCN V2: Improved Deep & Cross Network, WWW 2021.

    Args:
        features: as in `mlp`; so are the inputs and further arguments.
        continuous: see `mlp`.
        cross_layers: the depth of the cross network.
        rank: rank of the cross network's matrices; None for full matrices.
        hidden: the widths of the perceptron's hidden layers.
        max_embedding_dim: see `mlp`.
        id_dtypes: see `mlp`.
        combiner: see `mlp`.
        embeddings_initializer: see `mlp`.
        dropout: see `mlp`.
        output_name: see `mlp`.
        shard: how the tables are divided among workers: see `layers.EmbeddingCollection`.

    Returns:
        A functional model, not compiled.

    Raises:
        TrainingError: see `mlp`.

    Example:
        >>> model = dcn({"userId": (1000, 16), "movieId": (500, 16)}, ["age"], rank=8)
    """
    columns = columns_of(features, continuous, id_dtypes)
    inputs = columns.inputs()
    x = embedded(columns, inputs, max_embedding_dim, combiner, embeddings_initializer, shard=shard)
    crossed = CrossNetwork(cross_layers, rank, name="cross")(x)
    joined = keras.layers.Concatenate(name="output_inputs")([crossed, dense(x, hidden, dropout)])
    return assembled("dcn", columns, inputs, probability(joined, output_name))
