"""Two towers, for retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.models.columns import Columns, Features, IdDtype, columns_of
from training.models.tower import assembled, dense, embedded, probability


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
) -> keras.Model:
    """A vector of the query and one of the candidate; the output is their scaled cosine.

    For retrieval the towers are separated: the candidates' vectors form an index of nearest
    neighbours, and the query's tower is served, whose output vector is looked up there. Each tower
    is a model with the trained weights, exported like any other, with the same workflow:

        def tower(side, names):
            vector = model.get_layer(f"{side}_vector").output
            return keras.Model({name: model.input[name] for name in names}, vector)

        items = KerasSequenceLoader("items", 4096, [], cat_names=candidate, shuffle=False)
        np.save("items.npy", tower("candidate", candidate).predict(items))
        export_tensorflow_ensemble(tower("query", query), workflow, "users", "models", ["rating"])

    Source: P. Covington et al., Deep Neural Networks for YouTube Recommendations, RecSys 2016.

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

    Returns:
        A functional model with one probability as output, not compiled.

    Raises:
        TrainingError: see `mlp`; also for a column in no tower or in both.

    Example:
        >>> sizes = {"userId": (1000, 16), "movieId": (500, 16)}
        >>> model = two_tower(sizes, query=["userId"], candidate=["movieId"])
    """
    columns = columns_of(features, continuous, id_dtypes)
    _check_sides(columns, query, candidate)
    inputs = columns.inputs()
    vectors = []
    for side, names in (("query", query), ("candidate", candidate)):
        own = columns.only(names)
        taken = {name: inputs[name] for name in names}
        x = embedded(
            own, taken, max_embedding_dim, combiner, embeddings_initializer, f"{side}_features"
        )
        x = dense(x, hidden, dropout, f"{side}_hidden")
        x = keras.layers.Dense(width, name=f"{side}_projection")(x)
        vectors.append(UnitVector(name=f"{side}_vector")(x))
    match = keras.layers.Dot(axes=1, name="cosine")(vectors)
    return assembled("two_tower", inputs, probability(match, output_name))


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
    known = [*columns.sizes, *columns.continuous]
    if not (query and candidate) or sorted([*query, *candidate]) != sorted(known):
        raise TrainingError(
            f"Expected each of the columns {', '.join(known)} either in query or in candidate, "
            f"none of which is empty. Received: query={list(query)}, candidate={list(candidate)}."
        )
