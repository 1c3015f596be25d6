import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError
from training.layers import (
    DenseFeatures,
    EmbeddingBag,
    LinearFeatures,
    SequenceEmbedding,
    XDeepFMOuterProduct,
)

CARDINALITIES = {"user": 6, "genres": 5}
INPUTS = {
    "user": tf.constant([[2], [2], [7]]),
    "genres": (tf.constant([[3], [4], [2]]), tf.constant([[1], [2], [0]])),
    "vector": tf.constant([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]),
}


def test_it_starts_at_zero_and_learns_the_gradient_of_the_formula():
    layer = LinearFeatures(CARDINALITIES, ["vector"])
    with tf.GradientTape() as tape:
        result = layer(INPUTS)
        loss = tf.reduce_sum(result * [[1.0], [10.0], [100.0]])
    assert not result.numpy().any()
    weights = layer.trainable_weights
    keras.optimizers.SGD(1.0).apply(tape.gradient(loss, weights), weights)
    # user 2 is in two rows; user 7 is unknown; the bias and the kernel see every row.
    kernel = np.array([[-31.0], [-42.0]])
    bias = -111.0
    expected = INPUTS["vector"].numpy() @ kernel + bias + [[-11 - 1], [-11 - 20], [-100]]
    np.testing.assert_allclose(layer(INPUTS), expected)


def test_all_weights_of_ids_are_one_variable():
    layer = LinearFeatures(CARDINALITIES)
    assert layer(INPUTS).shape == (3, 1)
    assert {tuple(weight.shape) for weight in layer.weights} == {(6 + 5 + 2, 1), (1,)}


def test_numbers_alone_do_as_well():
    layer = LinearFeatures({}, ["vector"])
    assert layer({"vector": keras.Input((2,))}).shape == (None, 1)
    assert layer(INPUTS).shape == (3, 1)
    assert len(layer.trainable_weights) == 2


def test_keras_saves_and_loads_it(tmp_path):
    inputs = {
        "user": keras.Input((1,), name="user", dtype="int32"),
        "genres": tuple(keras.Input((1,), name=f"genres{half}", dtype="int32") for half in "vn"),
        "vector": keras.Input((2,), name="vector"),
    }
    model = keras.Model(inputs, LinearFeatures(CARDINALITIES, ["vector"])(inputs))
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))


@pytest.mark.parametrize("arguments", [({},), (CARDINALITIES, ["user"])])
def test_no_column_or_one_named_twice(arguments):
    with pytest.raises(TrainingError, match="at least one column"):
        LinearFeatures(*arguments)


@pytest.mark.parametrize("layer", [DenseFeatures, LinearFeatures])
@pytest.mark.parametrize("width", [0, 2.5, "2", True])
def test_a_width_that_is_no_whole_number_is_refused(layer, width):
    """The numbers of two rows were one row of 2.5, and 0 meant as many as there are."""
    with pytest.raises(
        TrainingError, match=f"'price' as a whole number from 1. Received: {width!r}"
    ):
        layer({}, {"price": width})


@pytest.mark.parametrize("layer", [DenseFeatures, LinearFeatures])
@pytest.mark.parametrize("width", [None, 0])
def test_an_input_of_no_known_width_is_refused(layer, width):
    prices = {"price": keras.Input((width,))}
    with pytest.raises(TrainingError, match=rf"numbers \(N, k\) for 'price'.*\(None, {width}\)"):
        layer({}, ["price"])(prices)


@pytest.mark.parametrize(
    ("layer", "plain"),
    [
        (
            LinearFeatures({"user": np.int64(6)}, {"price": np.int32(2)}),
            {"cardinalities": [["user", 6]], "continuous": [["price", 2]]},
        ),
        (
            DenseFeatures({}, {"price": np.int32(2)}, indicators={"user": np.int64(6)}),
            {"indicators": [["user", 6]], "continuous": [["price", 2]], "embedding_sizes": []},
        ),
        (
            DenseFeatures({"user": (np.int64(9), 4)}, [], "sum", shard="row", skip_negative=True),
            {"embedding_sizes": [["user", 9, 4]], "combiner": "sum", "shard": "row"}
            | {"skip_negative": True},
        ),
        (EmbeddingBag(np.int64(9), np.int32(4)), {"input_dim": 9, "output_dim": 4}),
        (
            SequenceEmbedding(np.int64(9), np.int32(4), np.int64(3), shard="row"),
            {"input_dim": 9, "output_dim": 4, "length": 3, "shard": "row"},
        ),
        (XDeepFMOuterProduct(np.int64(3)), {"dim": 3}),
    ],
)
def test_a_config_is_of_plain_numbers_and_makes_the_layer_again(layer, plain):
    config = json.loads(json.dumps(layer.get_config()))
    assert {name: config[name] for name in plain} == plain
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()
