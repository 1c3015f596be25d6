import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError
from training.layers import dense_features_of

identity = tf.feature_column.categorical_column_with_identity
embedding = tf.feature_column.embedding_column
numeric = tf.feature_column.numeric_column


def test_columns_become_tables_and_numbers():
    columns = [
        numeric("age"),
        embedding(identity("user", 6), 3, "sum"),
        embedding(identity("genres", 5), 2, "sum"),
    ]
    layer = dense_features_of(columns)
    inputs = {
        "age": tf.constant([[31.0], [7.0]]),
        "user": tf.constant([[2], [5]]),
        "genres": (tf.constant([[3], [4]]), tf.constant([[0], [2]])),
    }
    result = layer(inputs).numpy()
    user, genres = (layer.embedding_tables[name].numpy() for name in ("user", "genres"))
    expected = [[*user[2], 0, 0, 31], [*user[5], *(genres[3] + genres[4]), 7]]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([identity("user", 6)], "IdentityCategoricalColumn.*ops.Categorify"),
        ([tf.feature_column.indicator_column(identity("user", 6))], "IndicatorColumn"),
        ([numeric("age", normalizer_fn=abs)], "without normalizer_fn"),
        (
            [embedding(tf.feature_column.categorical_column_with_hash_bucket("user", 6), 3)],
            "HashedCategoricalColumn.*ops.HashBucket",
        ),
        ([embedding(identity("a", 6), 3, "sum"), embedding(identity("b", 6), 3)], "mean, sum"),
        ([], "at least one column"),
    ],
)
def test_what_it_cannot_take_is_refused(columns, message):
    with pytest.raises(TrainingError, match=message):
        dense_features_of(columns)


def test_stacking_and_other_options_are_passed_on():
    columns = [embedding(identity(name, 6), 3) for name in ("a", "b")]
    layer = dense_features_of(columns, "stack", name="features", validate_ids=True)
    ids = tf.constant([[1]])
    assert layer({"a": ids, "b": ids}).shape == (1, 2, 3)
    assert (layer.name, layer.validate_ids) == ("features", True)
