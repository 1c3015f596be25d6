import keras
import numpy as np
import pytest
import tensorflow as tf

from training import TrainingError, optimizers

ROWS, WIDTH = 12, 3
# Each id several times in some batch, and two never.
BATCHES = [[1, 1, 2, 9], [2, 2, 2, 5], [0, 9, 1, 1], [5, 3, 3, 8]]


def gradients(dense=False):
    """Gradients of a table and of a kernel, step by step."""
    rng = np.random.default_rng(0)
    for ids in BATCHES * 2:
        values = rng.normal(size=(len(ids), WIDTH)).astype("float32")
        table = tf.IndexedSlices(tf.constant(values), tf.constant(ids), tf.constant([ROWS, WIDTH]))
        kernel = tf.constant(rng.normal(size=(4, 4)).astype("float32"))
        yield [tf.convert_to_tensor(table) if dense else table, kernel]


def times(gradient, scale):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
    return gradient * scale


def trained(optimizer, steps, scale=1.0):
    rng = np.random.default_rng(1)
    variables = [
        keras.Variable(rng.normal(size=shape).astype("float32"))
        for shape in [(ROWS, WIDTH), (4, 4)]
    ]
    optimizer.build(variables)

    @tf.function
    def apply(table, kernel):
        optimizer.apply([table, kernel])

    for table, kernel in steps:
        apply(times(table, scale), kernel * scale)
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize(
    ("ours", "keras_own", "options"),
    [
        (optimizers.SGD, keras.optimizers.SGD, {}),
        (optimizers.SGD, keras.optimizers.SGD, {"clipnorm": 0.7}),
        (optimizers.SGD, keras.optimizers.SGD, {"global_clipnorm": 0.7}),
        (optimizers.SGD, keras.optimizers.SGD, {"clipvalue": 0.5}),
        (optimizers.SGD, keras.optimizers.SGD, {"weight_decay": 0.1}),
        (optimizers.Adagrad, keras.optimizers.Adagrad, {}),
        (optimizers.Adagrad, keras.optimizers.Adagrad, {"initial_accumulator_value": 0.0}),
        (optimizers.Adagrad, keras.optimizers.Adagrad, {"clipnorm": 0.7}),
    ],
)
def test_it_equals_keras_on_the_dense_gradient(ours, keras_own, options):
    result = trained(ours(0.1, **options), gradients())
    expected = trained(keras_own(0.1, **options), gradients(dense=True))
    for own, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


def test_one_of_the_tables_that_it_was_built_for_is_trained_alone():
    """As where layers are frozen later: it has more rows than the first one, and repeated ones."""
    results = []
    for make, dense in ((optimizers.Adagrad, False), (keras.optimizers.Adagrad, True)):
        tables = [keras.Variable(np.ones((rows, WIDTH), "float32")) for rows in (2, ROWS)]
        optimizer = make(0.1)
        optimizer.build(tables)
        for gradient, _ in gradients(dense):
            optimizer.apply([gradient], tables[1:])
        results.append([table.numpy() for table in tables])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5)
    assert (results[0][0] == 1).all()


@pytest.mark.parametrize(
    ("ours", "keras_own", "options"),
    [
        (optimizers.Adam, keras.optimizers.Adam, {}),
        (optimizers.Adam, keras.optimizers.Adam, {"amsgrad": True}),
        (optimizers.SGD, keras.optimizers.SGD, {"momentum": 0.9}),
        (optimizers.SGD, keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_lazy_ones_equal_keras_where_every_batch_has_the_same_rows(ours, keras_own, options):
    def steps(dense):
        rng = np.random.default_rng(0)
        for _ in range(5):
            values = rng.normal(size=(ROWS, WIDTH)).astype("float32")
            rows = tf.IndexedSlices(tf.constant(values), tf.range(ROWS), tf.constant([ROWS, WIDTH]))
            yield [tf.convert_to_tensor(rows) if dense else rows, tf.ones((4, 4))]

    result = trained(ours(0.1, **options), steps(dense=False))
    expected = trained(keras_own(0.1, **options), steps(dense=True))
    for own, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizers.Adam(0.1),
        lambda: optimizers.Adam(0.1, amsgrad=True),
        lambda: optimizers.SGD(0.1, momentum=0.9),
        lambda: optimizers.Adagrad(0.1),
    ],
)
def test_rows_out_of_the_batch_stay_and_so_does_their_state(make):
    optimizer = make()
    start = trained(make(), [])[0]
    after_two = trained(optimizer, list(gradients())[:2])[0]
    untouched = [row for row in range(ROWS) if row not in {1, 2, 5, 9}]
    np.testing.assert_array_equal(after_two[untouched], start[untouched])
    fresh = 0.1 if isinstance(optimizer, optimizers.Adagrad) else 0
    for state in optimizer.variables:
        if tuple(state.shape) == (ROWS, WIDTH):
            np.testing.assert_allclose(state.numpy()[untouched], fresh)
            assert (state.numpy()[[1, 2, 5, 9]] != np.float32(fresh)).any()


def test_a_step_of_adam_reads_and_writes_no_whole_table():
    optimizer = optimizers.Adam(0.1)
    table = keras.Variable(np.ones((1000, WIDTH), "float32"))
    optimizer.build([table])

    @tf.function
    def apply(values, ids):
        optimizer.apply([tf.IndexedSlices(values, ids, tf.constant([1000, WIDTH]))])

    graph = apply.get_concrete_function(
        tf.TensorSpec((None, WIDTH)), tf.TensorSpec((None,), tf.int64)
    ).graph
    whole = [
        op.name
        for op in graph.get_operations()
        if any(tensor.shape.as_list() == [1000, WIDTH] for tensor in op.outputs if tensor.shape)
    ]
    assert not whole


@pytest.mark.parametrize("scale", [1024.0])
def test_a_fixed_loss_scale_is_taken_out_again(scale):
    scaled = trained(optimizers.Adagrad(0.1, loss_scale_factor=scale), gradients(), scale)
    plain = trained(optimizers.Adagrad(0.1), gradients())
    np.testing.assert_allclose(scaled[0], plain[0], rtol=1e-5)
    np.testing.assert_allclose(scaled[1], plain[1], rtol=1e-5)


def test_the_dynamic_loss_scale_skips_what_is_not_finite():
    inner = optimizers.SGD(0.1)
    optimizer = optimizers.LossScaleOptimizer(inner, initial_scale=8.0)
    steps = list(gradients())
    expected = trained(optimizers.SGD(0.1), steps[:2])
    broken = times(steps[2][0], np.inf)
    result = trained(optimizer, steps[:2], scale=8.0)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5)
    before = optimizer.inner_optimizer.iterations.numpy()
    optimizer.apply([broken, steps[2][1]])
    assert optimizer.dynamic_scale.numpy() == 4.0
    assert optimizer.inner_optimizer.iterations.numpy() == before


def test_it_is_saved_with_its_state(tmp_path):
    model = keras.Sequential([keras.Input((1,), dtype="int32"), keras.layers.Embedding(10, 2)])
    model.compile(optimizers.Adam(0.05), "mse")
    model.fit(np.ones((8, 1), "int32"), np.ones((8, 1, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, optimizers.Adam)
    for own, other in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(own.numpy(), other.numpy())


def test_accumulated_gradients_are_refused():
    with pytest.raises(
        TrainingError, match=r"gradient_accumulation_steps.*Received: 4.*larger batch"
    ):
        optimizers.Adam(0.1, gradient_accumulation_steps=4)
