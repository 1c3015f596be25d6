"""Two towers, for retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.models.columns import Columns, Features, IdDtype, columns_of
from training.models.tower import dense, embedded, probability


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
    """A vector of the query and one of the candidate; their cosine tells how well they match.

    Either vector can be served by itself, and candidates' vectors be indexed:

        keras.Model(
            {name: model.input[name] for name in query}, model.get_layer("query_vector").output
        )

    Source: P. Covington et al., Deep Neural Networks for YouTube Recommendations, RecSys 2016.

    Args:
        features: as in `mlp`, and so are inputs and further arguments.
        continuous: see `mlp`.
        query: the columns of the query: the user and the context.
        candidate: the columns of the candidate: the item.
        width: of the two vectors, which have length one.
        hidden: the widths of each tower's hidden layers.
        max_embedding_dim: see `mlp`.
        id_dtypes: see `mlp`.
        combiner: see `mlp`.
        embeddings_initializer: see `mlp`.
        dropout: see `mlp`.
        output_name: see `mlp`.

    Returns:
        A functional model of one probability, not compiled.

    Raises:
        TrainingError: see `mlp`; and a column in no tower or in both.

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
        x = embedded(own, taken, max_embedding_dim, combiner, embeddings_initializer)
        x = keras.layers.Dense(width)(dense(x, hidden, dropout))
        vectors.append(keras.layers.UnitNormalization(name=f"{side}_vector")(x))
    match = keras.layers.Dot(axes=1)(vectors)
    return keras.Model(inputs, probability(match, output_name))


def _check_sides(columns: Columns, query: Sequence[str], candidate: Sequence[str]) -> None:
    known = [*columns.sizes, *columns.continuous]
    if not (query and candidate) or sorted([*query, *candidate]) != sorted(known):
        raise TrainingError(
            f"Expected each of the columns {', '.join(known)} either in query or in candidate, "
            f"none of which is empty. Received: query={list(query)}, candidate={list(candidate)}."
        )
