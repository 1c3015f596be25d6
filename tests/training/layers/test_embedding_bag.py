import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError
from training.layers import EmbeddingBag

VALUES = np.array([3, 7, 3, 0, 9, 9, 9])
LENGTHS = np.array([2, 0, 1, 4, 0])


def bag_of(combiner="mean", **options):
    layer = EmbeddingBag(10, 5, combiner, "normal", **options)
    layer.build()
    return layer


def pair(values, lengths, values_dtype="int64", lengths_dtype="int64"):
    return (
        tf.constant(np.reshape(values, (-1, 1)), values_dtype),
        tf.constant(np.reshape(lengths, (-1, 1)), lengths_dtype),
    )


def by_hand(table, values, lengths, combiner):
    divisor = {"sum": np.ones_like, "mean": np.abs, "sqrtn": np.sqrt}[combiner]
    rows, start = [], 0
    for length in lengths:
        vectors = table[values[start : start + length]]
        rows.append(vectors.sum(axis=0) / divisor(max(length, 1)))
        start += length
    return np.array(rows)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("values_dtype", ["int32", "int64", "int8", "uint16"])
@pytest.mark.parametrize("lengths_dtype", ["int32", "int64"])
def test_bags_equal_a_loop_over_rows(combiner, values_dtype, lengths_dtype):
    layer = bag_of(combiner)
    result = layer(pair(VALUES, LENGTHS, values_dtype, lengths_dtype)).numpy()
    expected = by_hand(layer.embeddings.numpy(), VALUES, LENGTHS, combiner)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_long_batches_are_as_short_ones():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 5000)
    values = rng.integers(0, 10, lengths.sum())
    layer = bag_of()
    expected = by_hand(layer.embeddings.numpy(), values, lengths, "mean")
    np.testing.assert_allclose(layer(pair(values, lengths)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_empty_rows_are_zeros_wherever_they_stand():
    layer = bag_of()
    assert not layer(pair([], [0, 0])).numpy().any()
    result = layer(pair([1], [0, 1, 0])).numpy()
    assert not result[[0, 2]].any()
    assert result[1].any()


def test_a_batch_without_rows_gives_no_rows():
    assert bag_of()(pair([], [])).shape == (0, 5)


def test_a_row_is_the_same_to_the_bit_alone_and_in_a_batch():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, 300)
    values = rng.integers(0, 10, lengths.sum())
    layer = bag_of()
    together = layer(pair(values, lengths)).numpy()
    ends = np.cumsum(lengths)
    for row in (0, 17, 299):
        own = values[ends[row] - lengths[row] : ends[row]]
        np.testing.assert_array_equal(layer(pair(own, [len(own)])).numpy()[0], together[row])


def test_single_values_are_plain_lookups():
    layer = bag_of()
    result = layer(tf.constant([[4], [4], [0]])).numpy()
    np.testing.assert_array_equal(result, layer.embeddings.numpy()[[4, 4, 0]])


@pytest.mark.parametrize("lengths", [[2, 0, 1, 3, 0], [2, 0, 1, 5, 0], [9, -2]])
def test_lengths_that_do_not_add_up_are_refused(lengths):
    with pytest.raises(tf.errors.InvalidArgumentError):
        bag_of()(pair(VALUES, lengths))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
def test_an_id_out_of_range_gives_zeros(dtype):
    layer = bag_of("sum")
    beyond = [10, 2**63, 2**64 - 1] if dtype == "uint64" else [10, -1, -(2**31)]
    far = np.array(beyond, dtype)
    assert not layer(tf.constant(far[:, None])).numpy().any()
    values = np.array([far[0], 3, far[1]], dtype)
    result = layer(pair(values, [2, 1], dtype)).numpy()
    np.testing.assert_array_equal(result, [layer.table.numpy()[3], np.zeros(5)])


def test_ids_out_of_range_share_a_vector_once_training_saw_them():
    layer = bag_of("sum")
    before = layer.table.numpy()
    optimizer = keras.optimizers.SGD(1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[10]])))
    optimizer.apply(tape.gradient(loss, layer.trainable_weights), layer.trainable_weights)
    np.testing.assert_array_equal(layer(tf.constant([[-7], [99]])), -np.ones((2, 5)))
    np.testing.assert_array_equal(layer.table, before)


@pytest.mark.parametrize("inputs", [[[10]], [[3], [-1]]])
@pytest.mark.parametrize("compiled", [False, True])
def test_validate_ids_names_the_column_and_the_ids(inputs, compiled):
    layer = bag_of(name="userId", validate_ids=True)
    call = tf.function(layer) if compiled else layer
    text = r"ids of column userId in 0 \.\. 9.*get_embedding_sizes"
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        call(tf.constant(inputs))
    np.testing.assert_array_equal(call(tf.constant([[9], [0]])), layer.table.numpy()[[9, 0]])


def test_validate_ids_checks_row_lengths():
    layer = bag_of(name="genres", validate_ids=True)
    for lengths in ([2, 0], [2, 2], [5, -2]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="lengths of column genres"):
            layer(pair([1, 2, 3], lengths))


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_the_gradient_is_that_of_the_formula_and_stays_sparse(combiner):
    layer = bag_of(combiner)
    weights = np.random.default_rng(1).normal(size=(5, 5)).astype("float32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(pair(VALUES, LENGTHS)) * weights)
    gradient = tape.gradient(loss, layer.embeddings.value)
    assert isinstance(gradient, tf.IndexedSlices)
    per_value = weights[np.repeat(np.arange(5), LENGTHS)]
    counts = np.repeat(LENGTHS, LENGTHS)[:, None]
    per_value /= {"sum": 1, "mean": counts, "sqrtn": np.sqrt(counts)}[combiner]
    expected = np.zeros((11, 5), "float32")  # the last is the row of the unknown
    np.add.at(expected, VALUES, per_value)
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, rtol=1e-5, atol=1e-6)


def test_mixed_precision_keeps_the_table_whole_and_casts_the_result():
    layer = bag_of(dtype="mixed_float16")
    assert layer.embeddings.dtype == "float32"
    given = [tf.TensorSpec((None, 1), tf.int64)] * 2
    traced = tf.function(lambda *inputs: layer(inputs)).get_concrete_function(*given)
    assert traced.outputs[0].dtype == tf.float16
    casts = [op for op in traced.graph.get_operations() if op.type == "Cast"]
    assert not [op for op in casts if op.outputs[0].shape.as_list() == [11, 5]]


def test_a_saved_model_of_keras_brings_it_back(tmp_path):
    inputs = [keras.Input((1,), dtype="int32"), keras.Input((1,), dtype="int32")]
    model = keras.Model(inputs, EmbeddingBag(10, 5, "sqrtn", "normal")(tuple(inputs)))
    model.save(tmp_path / "bag.keras")
    loaded = keras.models.load_model(tmp_path / "bag.keras")
    given = list(pair(VALUES, LENGTHS, "int32", "int32"))
    np.testing.assert_array_equal(loaded(given), model(given))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "at least one row.*Received: input_dim=0"),
        ((10, 2.5), "as integers.*output_dim=2.5"),
        ((10, 5, "max"), "sum, mean, sqrtn.*Received: 'max'"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message):
    with pytest.raises(TrainingError, match=message):
        EmbeddingBag(*arguments)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (tf.constant([[1.0]]), "integer dtype.*float32"),
        (tf.constant([1, 2]), r"shape \(rows, 1\).*\(2,\)"),
        (tf.constant([[1, 2]]), r"shape \(rows, 1\).*\(1, 2\)"),
        ((tf.constant([[1]]),) * 3, "a pair.*Received: 3 tensors"),
    ],
)
def test_inputs_of_another_form(inputs, message):
    with pytest.raises(TrainingError, match=message):
        bag_of()(inputs)


def test_there_is_no_table_before_it_is_built():
    with pytest.raises(TrainingError, match=r"Expected a layer that is built.*Call it"):
        _ = EmbeddingBag(10, 5).table
