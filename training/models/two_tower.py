"""Two towers, for retrieval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.layers import DenseFeatures
from training.models.columns import Columns, Features, IdDtype, columns_of
from training.models.log_probability import log_probability
from training.models.tower import assembled, dense_layers, probability
from training.retrieval.softmax import InBatchSoftmax, SampledSoftmax
from workflow.schema.names import listed
from workflow.schema.python_number import takes_numpy_numbers, whole_number


@takes_numpy_numbers
def two_tower(
    features: Features,
    continuous: Iterable[str] = (),
    *,
    query: Sequence[str],
    candidate: Sequence[str],
    width: int = 64,
    hidden: Sequence[int] = (256, 128),
    max_embedding_dim: int | None = None,
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
    softmax: InBatchSoftmax | SampledSoftmax | None = None,
    shard: str | None = None,
) -> keras.Model:
    """A vector of the query and one of the candidate, whose cosine says how well they match.

    Without `softmax` the output is a probability of each pair, a function of the cosine, for data
    with positive and negative rows. With it the output is the logarithm of the probability of the
    row's item among others, to be trained with `SoftmaxLoss`, which needs positive rows only:

        train(model, loader, loss=retrieval.SoftmaxLoss())

    For retrieval the towers are separated: `retrieval.write_item_vectors` writes the candidates'
    vectors to a file, and the query's tower, `retrieval.tower(model, "query")`, is served, whose
    output is compared with them.

    Sources: P. Covington et al., Deep Neural Networks for YouTube Recommendations, RecSys 2016; X.
    Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations, RecSys
    2019.

    Args:
        features: as in `mlp`; so are the inputs and further arguments.
        continuous: see `mlp`.
        query: the query's columns: the user and the context.
        candidate: the candidate's columns: the item.
        width: width of the two vectors, which have length one.
        hidden: the widths of each tower's hidden layers.
        max_embedding_dim: see `mlp`.
        id_dtypes: see `mlp`.
        combiner: see `mlp`.
        embeddings_initializer: see `mlp`.
        dropout: see `mlp`.
        output_name: see `mlp`.
        softmax: `InBatchSoftmax` or `SampledSoftmax`; None for pairs.
        shard: how both towers' tables are divided among workers: see `layers.EmbeddingCollection`.
            Each tower has a plan of its own. With `softmax` the negatives of a row are those of its
            own worker.

    Returns:
        A functional model with one number a row as output, not compiled.

    Raises:
        TrainingError: see `mlp`; also for a column in no tower or in both, an item that is no column
            of single ids of the candidate, or a catalogue that lacks its columns.

    Example:
        >>> sizes = {"userId": (1000, 16), "movieId": (500, 16)}
        >>> model = two_tower(sizes, query=["userId"], candidate=["movieId"])
    """
    whole_number("width", width, 1, TrainingError)
    columns = columns_of(features, continuous, id_dtypes)
    _check_sides(columns, query, candidate)
    inputs = columns.inputs()

    def tower(side: str, names: Sequence[str]) -> Callable[[Any], Any]:
        tower_columns = columns.only(names)
        layers = [
            DenseFeatures(
                tower_columns.capped(max_embedding_dim),
                tower_columns.continuous,
                combiner,
                embeddings_initializer,
                shard=shard,
                name=f"{side}_features",
            ),
            *dense_layers(hidden, dropout, f"{side}_hidden"),
            keras.layers.Dense(width, name=f"{side}_projection"),
            UnitVector(name=f"{side}_vector"),
        ]
        return lambda x: reduce(lambda tensor, layer: layer(tensor), layers, x)

    items = tower("candidate", candidate)
    vectors = [
        tower("query", query)({name: inputs[name] for name in query}),
        items({name: inputs[name] for name in candidate}),
    ]
    if softmax is None:
        match = keras.layers.Dot(axes=1, name="cosine")(vectors)
        return assembled("two_tower", columns, inputs, probability(match, output_name))
    side = columns.only(candidate)
    output = log_probability(softmax, side, inputs, vectors, items, output_name)
    return assembled("two_tower", columns, inputs, output)


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class UnitVector(keras.layers.Layer):
    """Vectors scaled to length one, in float32 under every precision.

    `keras.layers.UnitNormalization` divides zero by zero in 16 bits, for example for a row without
    a known feature. Here a vector shorter than 0.001 is multiplied by 1000 instead.

    Example:
        >>> UnitVector()(tf.constant([[3.0, 4.0], [0.0, 0.0]])).numpy().round(1)
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The vectors, (N, width), in float32."""
        return tf.math.l2_normalize(tf.cast(inputs, tf.float32), axis=-1, epsilon=1e-6)

    def compute_output_spec(self, inputs: Any) -> Any:
        """The shape of the inputs."""
        return keras.KerasTensor(inputs.shape, "float32")


def _check_sides(columns: Columns, query: Sequence[str], candidate: Sequence[str]) -> None:
    names = [*columns.sizes, *columns.continuous]
    if not (query and candidate) or sorted([*query, *candidate]) != sorted(names):
        raise TrainingError(
            f"Expected each of the columns {listed(names)} either in query or in candidate, "
            f"none of which is empty. Received: query={list(query)}, candidate={list(candidate)}."
        )
