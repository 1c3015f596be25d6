"""`DenseFeatures` from TensorFlow's feature columns, as NVTabular took them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from training.errors import TrainingError
from training.layers.dense_features import DenseFeatures


def dense_features_of(
    feature_columns: Iterable[Any], aggregation: str = "concat", **options: Any
) -> DenseFeatures:
    """The layer for embedding columns over identity columns, and for numeric columns.

    TensorFlow deprecates feature columns, and Keras 3 has no layer for them; with this, code for
    NVTabular's `DenseFeatures(feature_columns, aggregation)` needs one name changed. Embeddings
    come first, then numbers, each in the order given. The initializer is the layer's.

    Args:
        feature_columns: `tf.feature_column.embedding_column` over
            `categorical_column_with_identity`, and `numeric_column`. What else there is, such as
            hashing and vocabularies, belongs into the workflow: `ops.HashBucket`,
            `ops.Categorify`, `ops.Bucketize`.
        aggregation: as in `DenseFeatures`.
        **options: further ones of `DenseFeatures`.

    Raises:
        TrainingError: a column of another kind, or combiners that differ.

    Example:
        >>> user = tf.feature_column.categorical_column_with_identity("userId", 100)
        >>> layer = dense_features_of([tf.feature_column.embedding_column(user, 16)])
        >>> layer({"userId": tf.constant([[5], [9]])}).shape
        TensorShape([2, 16])
    """
    sizes, numbers, combiners = {}, [], set()
    for column in feature_columns:
        kind = type(column).__name__
        if kind == "NumericColumn" and column.normalizer_fn is None:
            numbers.append(column.key)
        elif kind == "EmbeddingColumn" and hasattr(column.categorical_column, "number_buckets"):
            source = column.categorical_column
            sizes[source.key] = (source.number_buckets, column.dimension)
            combiners.add(column.combiner)
        else:
            raise TrainingError(
                "Expected embedding columns over categorical_column_with_identity, and numeric "
                f"columns without normalizer_fn. Received: {column!r}. Do in the workflow what it "
                "does: ops.Categorify, ops.HashBucket, ops.Bucketize, ops.Normalize."
            )
    if len(combiners) > 1:
        raise TrainingError(
            "Expected one combiner for all embedding columns. "
            f"Received: {', '.join(sorted(combiners))}. Use one layer for each."
        )
    combiner = combiners.pop() if combiners else "mean"
    return DenseFeatures(sizes, numbers, combiner, aggregation=aggregation, **options)
