"""Networks as ONNX models: what is converted answers as Keras does, and the rest is refused."""

from functools import partial

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from small_export import rows

from exporter import ExportError, ServingOptions, verify
from exporter.write.onnx import model as onnx_model
from exporter.write.onnx.network import network_to_onnx
from training import layers, make_feature_column_workflow, models
from training.network.keras_network import KerasNetwork
from workflow import Workflow, ops

ONNX = ["onnx", "fused_onnx"]
PRICE = ["price"] >> ops.FillMissing(0.0) >> ops.Normalize()


def onnx_file(report, name):
    return report.paths[name] / "model.onnx"


def ask_fused(report, feed):
    session = onnxruntime.InferenceSession(
        str(onnx_file(report, "movies")), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)[0]


def test_large_tables_lie_beside_the_model(export, monkeypatch):
    sizes = {"userId": (30_000, 8)}
    network = models.mlp(sizes, ["price"], hidden=(4,), id_dtypes={"userId": "int64"})
    pipeline = Workflow(PRICE + (["userId"] >> ops.Categorify())).fit(rows())
    options = ServingOptions(runtime="fused_onnx")
    inside = export(network, pipeline, labels=[], serving=options)
    assert [path.name for path in inside.paths["movies"].iterdir() if "data" in path.name] == []
    monkeypatch.setattr(onnx_model, "EMBEDDED_BYTES", 100_000)
    beside = export(network, pipeline, labels=[], version=2, serving=options)
    tables = beside.paths["movies"] / "tables.data"
    assert tables.stat().st_size >= 30_000 * 8 * 4
    assert onnx_file(beside, "movies").stat().st_size < 100_000
    feed = {"userId": np.array([[2], [7]]), "price": np.array([[1.0], [np.nan]])}
    np.testing.assert_array_equal(ask_fused(beside, feed), ask_fused(inside, feed))
    assert verify(beside.repository, "movies") == beside.generation


@keras.saving.register_keras_serializable(package="tests")
class Mystery(keras.layers.Layer):
    """A layer of an operation that ONNX does not have."""

    def call(self, x):
        return tf.math.igamma(tf.ones_like(x), x)

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("runtime", ONNX)
def test_a_hash_of_strings_is_refused_before_anything_is_written(runtime, export, tmp_path):
    data = {"city": ["a", "b"], "price": [1.0, 2.0]}
    pipeline = Workflow((["city"] >> ops.HashBucket(10)) + PRICE).fit(data)
    network = models.mlp({"city": (10, 4)}, ["price"], hidden=(4,), id_dtypes={"city": "int32"})
    with pytest.raises(ExportError, match=r'HashBucket.*city.*use runtime="tensorflow"') as error:
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert str(error.value).count("fused_tensorflow") == 1
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", ONNX)
def test_feature_columns_whose_values_are_hashed_are_refused(runtime, export, tmp_path):
    columns_of = tf.feature_column
    hashed = columns_of.categorical_column_with_hash_bucket("user", 10, tf.int64)
    made = make_feature_column_workflow([columns_of.indicator_column(hashed)])
    pipeline = made.workflow.fit({"user": [7, 8]})
    ids = {"user": keras.Input((1,), name="user", dtype="int64")}
    network = keras.Model(ids, layers.DenseFeatures(made.feature_columns)(ids))
    with pytest.raises(ExportError, match=r"fingerprints.*LambdaOp, of 'user'.*fused_tens"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


def test_crosses_of_integers_and_values_without_an_id_are_served(export):
    """ONNX's OneHot counts -1 as the last id, which an indicator must not count."""
    columns_of = tf.feature_column
    columns = [
        columns_of.crossed_column(["user", "hour"], 9, hash_key=5),
        columns_of.categorical_column_with_vocabulary_list("user", [7, 8], dtype=tf.int64),
    ]
    made = make_feature_column_workflow([columns_of.indicator_column(each) for each in columns])
    data = {"user": [7, 8, 9, None], "hour": [0, 2**62, -1, 3]}
    pipeline = made.workflow.fit(data)
    ids = {n: keras.Input((1,), name=n, dtype="int64") for n in ("hour_X_user", "user")}
    network = keras.Model(ids, layers.DenseFeatures(made.feature_columns)(ids))
    options = ServingOptions(runtime="fused_onnx")
    report = export(network, pipeline, labels=[], serving=options)
    feed = {"user": np.array([[7], [8], [9], [-1]]), "hour": np.array([[0], [2**62], [-1], [3]])}
    tensors = {name: tf.constant(values[:3]) for name, values in feed.items()}
    crossed = tf.sparse.cross_hashed([tensors["user"], tensors["hour"]], 9, 5).values.numpy()
    expected = np.zeros((4, 9 + 2), np.float32)
    expected[[0, 1, 2], crossed] = 1
    expected[[0, 1], [9, 10]] = 1
    feed["user"][3] = np.iinfo(np.int64).min  # the null of the wire
    np.testing.assert_array_equal(ask_fused(report, feed), expected)


@pytest.mark.parametrize("runtime", ONNX)
def test_a_vocabulary_with_nul_is_refused_before_anything_is_written(runtime, export, tmp_path):
    """Triton's own backend would take what stands before the NUL for the whole string."""
    data = {"city": ["a", "b\0"], "price": [1.0, 2.0]}
    pipeline = Workflow((["city"] >> ops.Categorify()) + PRICE).fit(data)
    network = models.mlp({"city": (10, 4)}, ["price"], hidden=(4,))
    with pytest.raises(ExportError, match=r"'city' without NUL.*Received.*fused_tensorflow"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("runtime", ONNX)
def test_a_network_that_onnx_cannot_express_is_refused(runtime, export, tmp_path):
    price = keras.Input((1,), name="price")
    network = keras.Model({"price": price}, {"score": Mystery()(price)})
    with pytest.raises(ExportError, match=r'Igamma.*Use runtime="tensorflow"'):
        export(
            network,
            Workflow(PRICE).fit(rows()),
            labels=[],
            serving=ServingOptions(runtime=runtime),
        )
    assert not (tmp_path / "models").exists()


class Unusual(keras.layers.SimpleRNNCell):
    """A cell of an operation that ONNX does not have."""

    def call(self, *given, **options):
        output, states = super().call(*given, **options)
        return tf.math.igamma(tf.ones_like(output), tf.abs(output)), states


@pytest.mark.long
def test_operations_inside_a_loop_are_named_where_they_are_refused():
    x, vectors = embedded(2)
    network = keras.Model({"x": x}, {"y": keras.layers.RNN(Unusual(2))(vectors)})
    with pytest.raises(ExportError, match=r"TensorFlow's Igamma\. Use runtime"):
        network_to_onnx(KerasNetwork(network, {}))


@pytest.mark.parametrize("runtime", ONNX)
def test_a_network_of_strings_is_refused(runtime, export, tmp_path):
    word = keras.Input((1,), name="word", dtype="string")
    layer = keras.layers.StringLookup(vocabulary=["a", "b"])
    network = keras.Model({"word": word}, {"id": layer(word)})
    pipeline = Workflow(["word"]).fit({"word": ["a", "b"]})
    with pytest.raises(ExportError, match=r"without strings.*word.*Use runtime"):
        export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert not (tmp_path / "models").exists()


def lists_network():
    """An embedding bag, beside a table that is large enough to be left out of the conversion."""
    values, nnzs = (
        keras.Input((1,), name=f"x__{half}", dtype="int64") for half in ("values", "nnzs")
    )
    bag = layers.EmbeddingBag(30_000, 8, combiner="sqrtn", embeddings_initializer="normal")
    return keras.Model([values, nnzs], {"y": keras.layers.Dense(1)(bag((values, nnzs)))})


def embedded(width):
    x = keras.Input((3,), name="x", dtype="int32")
    return x, keras.layers.Embedding(10, width)(x)


def convolving_network():
    """Convolutions with kernels that are large enough to be left out of the conversion."""
    x, vectors = embedded(256)
    lines = keras.layers.Conv1D(40, 3, padding="same")(vectors)
    planes = keras.layers.Reshape((3, 4, 64))(vectors)
    planes = keras.layers.Conv2D(48, 3, padding="same")(planes)
    flat = keras.layers.Flatten
    return keras.Model({"x": x}, {"lines": flat()(lines), "planes": flat()(planes)})


def recurrent_network():
    """A loop with kernels that are large enough to be left out of the conversion."""
    x, vectors = embedded(256)
    return keras.Model({"x": x}, {"y": keras.layers.SimpleRNN(128)(vectors)})


def dense_network():
    x = keras.Input((1,), name="x")
    hidden = keras.layers.Dense(4, activation="gelu")(keras.layers.BatchNormalization()(x))
    return keras.Model(
        x, [keras.layers.Dense(1, name="a")(hidden), keras.layers.Softmax(name="b")(hidden)]
    )


def rounding_network(dtype):
    """Quotients and remainders, rounded down."""
    x = keras.Input((1,), name="x", dtype=dtype)
    outputs = {"quotient": x // 3, "rest": x % 3, "of_negative": (-x) % 3, "by_negative": x % -3}
    return keras.Model({"x": x}, outputs)


def dividing_network(dtype):
    """Quotients and remainders by numbers of a request, and by -1."""
    x, y = (keras.Input((1,), name=name, dtype=dtype) for name in "xy")
    outputs = {"quotient": x // y, "rest": x % y, "by_minus_one": x // -1, "no_rest": x % -1}
    return keras.Model({"x": x, "y": y}, outputs)


def remainder_network(dtype):
    """Remainders of multiples of numbers that no float holds, which are nearly the divisor."""
    x = keras.Input((1,), name="x", dtype=dtype)
    return keras.Model({"x": x}, {"tenth": x % 0.1, "seventh": x % -0.7, "of_one": 1 % x})


def discretizing_network(dtype):
    """Places of values between boundaries, and a mark for each."""
    x = keras.Input((2,), name="x", dtype=dtype)
    bounds = [-1.0, 0.1, 0.5, 7.0]
    places = keras.layers.Discretization(bounds)(x)
    marks = keras.layers.Discretization(bounds, output_mode="multi_hot")(x)
    return keras.Model({"x": x}, {"places": places, "marks": marks})


def growing_network(dtype):
    """Logarithms of 1 + x and powers less 1, of which each digit counts near 0."""
    x = keras.Input((1,), name="x", dtype=dtype)
    outputs = {"logarithm": keras.ops.log1p(x), "power": keras.ops.expm1(x)}
    shares = {f"{name}_of_x": y / x for name, y in outputs.items()}
    return keras.Model({"x": x}, outputs | shares)


def ranking_network():
    """Places of the greatest and the least number, for which Keras looks at the bits of zeros."""
    x = keras.Input((3,), name="x")
    ops = keras.ops
    outputs = {"most": ops.argmax(x, -1, keepdims=True), "least": ops.argmin(x, 1, keepdims=True)}
    return keras.Model({"x": x}, outputs | {"signs": ops.cast(ops.signbit(x), "int32")})


def sorting_network(dtype):
    """The largest of numbers that float32 does not hold, and their places."""
    x = keras.Input((4,), name="x", dtype=dtype)
    largest, places = keras.ops.top_k(x, 3)
    return keras.Model({"x": x}, {"largest": largest, "places": places})


def marking_network():
    """Marks of ids, of which some are outside."""
    x = keras.Input((2,), name="x", dtype="int64")
    ops = keras.ops
    outputs = {
        "last": ops.one_hot(x, 3),
        "middle": ops.one_hot(x, 3, axis=1),
        "whole": ops.one_hot(x, 3, dtype="int32"),
        "truth": ops.cast(ops.one_hot(x, 3, dtype="bool"), "int32"),
    }
    flat = {name: ops.reshape(y, (-1, 6)) for name, y in outputs.items()}
    return keras.Model({"x": x}, flat | {"several": ops.cast(ops.multi_hot(x, 3), "float64")})


class Compared(keras.layers.Layer):
    """Comparisons by TensorFlow, since those by Keras make uint32 of uint64."""

    def call(self, x):
        low, high = (tf.constant(number, x.dtype) for number in (2**24, 2**24 + 1))
        return tf.cast(tf.concat([x < high, x > low, x <= low, x >= high], 1), "int32")

    def compute_output_spec(self, _):
        return keras.KerasTensor((None, 4), "int32")


def comparing_network(dtype):
    """Numbers that float32 does not hold, compared."""
    x = keras.Input((1,), name="x", dtype=dtype)
    return keras.Model({"x": x}, {"y": Compared(dtype=dtype)(x)})


def choosing_network():
    """Choices, of which the other operand is not a number, or is no number."""
    x = keras.Input((1,), name="x", dtype="float32")
    ops = keras.ops
    outputs = {
        "number": ops.where(x > 0, ops.log(x), ops.zeros_like(x)),
        "truth": ops.cast(ops.where(x > 0, x < 2, x < -2), "int32"),
        "small": ops.where(x > 0, ops.cast(x, "int8"), ops.cast(-x, "int8")),
        "half": ops.cast(
            ops.where(x > 0, ops.cast(x, "float16"), ops.cast(1, "float16")), "float32"
        ),
    }
    return keras.Model({"x": x}, outputs)


def casting_network():
    """Casts through dtypes that round, or hold fewer values."""
    x = keras.Input((1,), name="x", dtype="float32")
    ops = keras.ops
    outputs = {
        "truth": ops.cast(ops.cast(x, "int32"), "bool"),
        "half": ops.cast(ops.cast(x, "float16"), "float32"),
        "whole": ops.cast(ops.cast(ops.cast(x, "int64") * 3, "float32"), "int64"),
        "double": ops.cast(ops.cast(ops.cast(x, "float64") / 3, "float32"), "float64"),
    }
    outputs["truth"] = ops.cast(outputs["truth"], "int32")
    return keras.Model({"x": x}, outputs)


def adding_network(dtype):
    """Sums and powers of whole numbers that float64 does not hold, some of which wrap around."""
    x = keras.Input((1,), name="x", dtype=dtype)
    ops = keras.ops
    pair = ops.concatenate([x, x, x * 3], 1)
    outputs = {"sum": ops.sum(pair, 1, keepdims=True), "flat": ops.sum(pair, -1)[:, None]}
    outputs |= {f"power{n}": ops.power(x, n) for n in (0, 1, 2, 5)}
    return keras.Model({"x": x}, {name: y % ops.cast(1000, dtype) for name, y in outputs.items()})


class Averaged(keras.layers.Layer):
    """Means and sums by TensorFlow, since those by Keras are of floats."""

    def call(self, x):
        blocks = tf.reshape(x, [-1, 2, 2])
        means = [tf.reduce_mean(x, 1), tf.reduce_mean(x[:, :3], -1), tf.reduce_mean(blocks, [1, 2])]
        return tf.stack([*means, tf.add_n([x[:, 0], x[:, 1], x[:, 2]])], 1)

    def compute_output_spec(self, x):
        return keras.KerasTensor((None, 4), x.dtype)


def averaging_network(dtype):
    """Means of whole numbers that float64 does not hold."""
    x = keras.Input((4,), name="x", dtype=dtype)
    return keras.Model({"x": x}, {"y": Averaged(autocast=False)(x)})


class Shifted(keras.layers.Layer):
    """Shifts by TensorFlow, since Keras makes another dtype of a shift by a number."""

    def call(self, x):
        by = tf.cast([[1, 3, 7]], x.dtype)
        return tf.concat([tf.bitwise.left_shift(x, by), tf.bitwise.right_shift(x, by)], 1)

    def compute_output_spec(self, x):
        return keras.KerasTensor((None, 6), x.dtype)


def shifting_network(dtype):
    """Bits shifted, as hashes do it."""
    x = keras.Input((1,), name="x", dtype=dtype)
    return keras.Model({"x": x}, {"y": Shifted(autocast=False)(x)})


def placing_network(dtype):
    """Places of values among sorted numbers, of which some are equal."""
    x = keras.Input((2,), name="x", dtype=dtype)
    ops = keras.ops
    bounds = ops.convert_to_tensor([-1, 0, 0, 2**24, 2**24 + 1], dtype)
    places = {
        side: ops.reshape(ops.searchsorted(bounds, ops.reshape(x, (-1,)), side=side), (-1, 2))
        for side in ("left", "right")
    }
    return keras.Model({"x": x}, places)


def softening_network():
    """Functions of numbers whose powers of e no float64 holds."""
    x = keras.Input((1,), name="x", dtype="float64")
    return keras.Model({"x": x}, {"plus": keras.ops.softplus(x), "log": keras.ops.log_sigmoid(x)})


def multiplying_network(dtype):
    """Products of whole numbers that float64 does not hold, as of ids that are crossed."""
    x = keras.Input((5,), name="x", dtype=dtype)
    ops = keras.ops
    blocks = ops.concatenate([ops.reshape(x, (-1, 5, 1)), ops.reshape(x, (-1, 5, 1))], 2)
    outputs = {
        "product": ops.prod(x, 1, keepdims=True),
        "flat": ops.prod(x, -1)[:, None],
        "of_two": ops.prod(x[:, 1:3], -1)[:, None],
        "of_blocks": ops.prod(blocks, (1, 2))[:, None],
        "of_one": ops.prod(x[:, :1], 1, keepdims=True),
    }
    thousand = ops.cast(1000, dtype)
    return keras.Model({"x": x}, {name: y % thousand for name, y in outputs.items()})


def bounding_network():
    """The greatest and the least of numbers, of which some have other lower halves than their order."""
    x, y = (keras.Input((20,), name=name, dtype="int64") for name in "xy")
    ops = keras.ops
    cube = ops.reshape(x, (-1, 4, 5))
    outputs = {
        "most": ops.maximum(x, y),
        "least": ops.minimum(x, 7),
        "clipped": ops.clip(x, -3, 2**32),
        "positive": ops.relu(x),
        "few": ops.relu6(x),
        "signs": ops.sign(x),
        "greatest": ops.max(x, 1, keepdims=True),
        "of_blocks": ops.max(cube, -1),
        "smallest": ops.min(cube, (1, 2))[:, None],
    }
    return keras.Model({"x": x, "y": y}, outputs)


def padding_network(dtype):
    """Numbers of which float32 does not hold all, between others."""
    x = keras.Input((2,), name="x", dtype=dtype)
    ops = keras.ops
    sevens = ops.pad(x, ((0, 0), (2, 0)), constant_values=ops.cast(7, dtype))
    return keras.Model({"x": x}, {"zeros": ops.pad(x, ((0, 0), (1, 2))), "sevens": sevens})


def wide_numbers(rows):
    """Numbers of which the lower halves have another order."""
    random = np.random.default_rng(0)
    return {name: random.integers(-(2**34), 2**34, (rows, 20)) for name in "xy"}


class Older(keras.layers.Layer):
    """Operations of TensorFlow 1, which its SavedModels have."""

    def call(self, x):
        ops = tf.raw_ops
        numbers = ops.Select(condition=x > 0, x=tf.math.log(x), y=x)
        pairs = tf.concat([x, tf.math.log(x)], 1)
        rows = ops.Select(condition=x[:, 0] > 0, x=pairs, y=tf.zeros_like(pairs))
        whole = tf.cast(x, "int32")
        rests = [ops.Mod(x=whole, y=whole * 0 - 3), ops.Mod(x=whole, y=whole * 0 + 3)]
        rests += [ops.TruncateMod(x=x, y=x * 0 + 3)]
        return tf.concat([numbers, rows, *(tf.cast(rest, "float32") for rest in rests)], 1)

    def compute_output_spec(self, x):
        return keras.KerasTensor((None, 6), x.dtype)


def older_network():
    x = keras.Input((1,), name="x")
    return keras.Model({"x": x}, {"y": Older()(x)})


class Truncated(keras.layers.Layer):
    """Remainders of whole numbers that float64 does not hold, in TensorFlow 1."""

    def call(self, x):
        return tf.raw_ops.TruncateMod(x=x, y=x * 0 - 1001)

    def compute_output_spec(self, x):
        return keras.KerasTensor((None, 1), x.dtype)


def truncating_network():
    x = keras.Input((1,), name="x", dtype="int64")
    return keras.Model({"x": x}, {"y": Truncated()(x)})


FEEDS = {
    **{
        f"{dtype} padded": (partial(padding_network, dtype), {"x": [[1, np.iinfo(dtype).max]]})
        for dtype in ("uint8", "int16", "uint32", "uint64", "int64")
    },
    "int64 bounded": (bounding_network, wide_numbers(16)),
    "whole numbers truncated": (
        truncating_network,
        {"x": [[2**62 + 1], [-(2**62) - 1], [-(2**63)]]},
    ),
    "older operations": (older_network, {"x": [[-7.5], [-1.0], [0.0], [1.0], [7.5]]}),
    "casts": (casting_network, {"x": [[0.5], [-0.7], [1 / 3], [16_777_214.0], [1.0]]}),
    **{
        f"{dtype} added": (
            partial(adding_network, dtype),
            {"x": [[np.iinfo(dtype).max], [np.iinfo(dtype).min], [np.iinfo(dtype).max // 9], [3]]},
        )
        for dtype in ("int32", "int64", "uint32", "uint64")
    },
    **{
        f"{dtype} multiplied": (
            partial(multiplying_network, dtype),
            {"x": [[3, 2**30 + 3, 2**30 - 35, 1, 1], [-7, 9, 2**30 + 3, 2**30 - 35, 11]]},
        )
        for dtype in ("int32", "int64")
    },
    "float32 multiplied": (
        lambda: multiplying_network("float32"),
        {"x": [[1.5, -2.0, 3.0, 0.5, 7.0], [0.0, 1.0, 1.0, 1.0, 1.0]]},
    ),
    **{
        f"{dtype} averaged": (
            partial(averaging_network, dtype),
            {
                "x": [
                    [
                        (limit := np.iinfo(dtype)).max // 16,
                        limit.max // 16 - 2,
                        limit.max // 16 - 5,
                        7,
                    ],
                    [limit.min // 16, 1, 1, 2],
                ]
            },
        )
        for dtype in ("int32", "int64", "uint64")
    },
    **{
        f"{dtype} shifted": (
            partial(shifting_network, dtype),
            {"x": [[0], [7], [np.iinfo(dtype).min], [np.iinfo(dtype).max], [100]]},
        )
        for dtype in ("int8", "int32", "int64", "uint32", "uint64")
    },
    "int64 placed": (lambda: placing_network("int64"), {"x": [[-2, -1], [0, 1], [2**24, 2**60]]}),
    "float32 placed": (
        lambda: placing_network("float32"),
        {"x": [[-1.5, -1.0], [0.0, -0.0], [np.inf, -np.inf], [2.0**24, np.nan]]},
    ),
    "float64 softened": (
        softening_network,
        {"x": [[-800.0], [-1.0], [0.0], [39.0], [41.0], [800.0]]},
    ),
    "nothing added": (lambda: adding_network("int64"), {"x": np.empty((0, 1))}),
    "int32 compared": (
        lambda: comparing_network("int32"),
        {"x": [[2**24 - 1], [2**24], [2**24 + 1], [2**24 + 2]]},
    ),
    "int64 compared": (
        lambda: comparing_network("int64"),
        {"x": [[2**24 - 1], [2**24], [2**24 + 1], [2**24 + 2]]},
    ),
    **{
        f"{dtype} compared": (
            partial(comparing_network, dtype),
            {"x": [[2**24], [2**24 + 1], [np.iinfo(dtype).max]]},
        )
        for dtype in ("uint32", "uint64")
    },
    "uint64 sorted": (
        lambda: sorting_network("uint64"),
        {"x": [[2**24 + 1, 2**24 + 2, 2**24, 2**24 + 2], [7, 2**63, 2**64 - 1, 2**63 - 1]]},
    ),
    "choices": (choosing_network, {"x": [[-3.0], [-1.0], [0.0], [1.0], [5.0]]}),
    "whole numbers rounded": (
        lambda: rounding_network("int64"),
        {"x": [[-7], [-3], [-1], [0], [1], [7]]},
    ),
    "real numbers rounded": (
        lambda: rounding_network("float32"),
        {"x": [[-7.5], [-3.0], [-0.5], [0.0], [0.5], [7.25]]},
    ),
    **{
        f"{dtype} divided": (
            partial(dividing_network, dtype),
            {
                "x": [[np.iinfo(dtype).min], [7], [-7], [7], [np.iinfo(dtype).min], [2**31 - 1]],
                "y": [[-1], [-1], [2], [-3], [3], [np.iinfo(dtype).min]],
            },
        )
        for dtype in ("int32", "int64")
    },
    "ids marked": (marking_network, {"x": [[0, 2], [-1, 1], [-3, 3], [2, 2]]}),
    "remainders in float32": (
        lambda: remainder_network("float32"),
        {"x": [[-2.1], [-0.3], [0.3], [1.0], [2.1], [16_777_218.0]]},
    ),
    "remainders in float64": (
        lambda: remainder_network("float64"),
        {"x": [[-2.1], [-0.3], [0.3], [1.0], [2.1], [16_777_218.0]]},
    ),
    "real numbers in ranges": (
        lambda: discretizing_network("float32"),
        {"x": [[-1.0, -1.5], [0.1, 0.0999], [7.0, np.inf], [np.nan, -np.inf], [0.5, 0.3]]},
    ),
    "whole numbers in ranges": (
        lambda: discretizing_network("int64"),
        {"x": [[-1, -2], [0, 1], [7, 6], [2**40, -(2**40)]]},
    ),
    **{
        f"{dtype} near 0": (
            partial(growing_network, dtype),
            {
                "x": [
                    *([sign * 10.0**power] for power in (-20, -9, -5, -2) for sign in (-1, 1)),
                    *([x] for x in (-2.0, -1.0, -0.7, 0.0, 0.9, 1.5, np.inf, -np.inf, np.nan)),
                ]
            },
        )
        for dtype in ("float32", "float64")
    },
    "numbers ranked": (
        ranking_network,
        {"x": [[-0.0, 0.0, -1], [0, -0.0, 0], [3, 5, 5], [np.inf, -np.inf, 1], [-2, -0.0, -3]]},
    ),
    "no numbers ranked": (ranking_network, {"x": np.empty((0, 3))}),
    **{
        f"{dtype} sorted": (
            partial(sorting_network, dtype),
            {"x": [[most - 1, most, most - 2, most], [-most, 7, 1 - most, 5]]},
        )
        for dtype, most in {
            "int32": 2**31 - 1,
            "int64": 2**53 + 2,
            "float32": 2.0**20,
            "float64": 1e9,
        }.items()
    },
    "lists": (lists_network, {"x__values": [[1], [29_999], [3]], "x__nnzs": [[2], [0], [1]]}),
    "empty lists": (lists_network, {"x__values": np.empty((0, 1)), "x__nnzs": [[0], [0]]}),
    "no rows": (lists_network, {"x__values": np.empty((0, 1)), "x__nnzs": np.empty((0, 1))}),
    "large kernels": (convolving_network, {"x": [[1, 2, 3], [9, 0, 9]]}),
    "large kernels of a loop": (recurrent_network, {"x": [[1, 2, 3], [9, 0, 9]]}),
    "activations": (dense_network, {"x": [[-3.0], [0.0], [5.0]]}),
}


@pytest.mark.parametrize("case", FEEDS)
def test_a_converted_network_answers_as_keras(case, tmp_path):
    make, feed = FEEDS[case]
    network = KerasNetwork(make(), {})
    network_to_onnx(network).write(tmp_path)
    feed = {s.name: np.array(feed[s.name], s.dtype) for s in network.signature.inputs}
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    expected = network.call(**{name: tf.constant(tensor) for name, tensor in feed.items()})
    assert [output.name for output in session.get_outputs()] == list(expected)
    for answer, (name, tensor) in zip(session.run(None, feed), expected.items(), strict=True):
        np.testing.assert_allclose(answer, tensor.numpy(), atol=1e-6, err_msg=name)
