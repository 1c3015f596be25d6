"""Networks as users write them, over one workflow: ids, numbers, strings, lists flat and padded."""

import keras
import polars as pl
import tensorflow as tf
from keras import layers, ops

from workflow import Workflow
from workflow import ops as workflow_ops

IDS, WIDTH = 8, 4


def rows():
    return pl.DataFrame(
        {
            "user": [1, 2, 2, None, 5],
            "genres": [["a", "b"], [], None, ["b", None], ["c"]],
            "recent": [[1, 2, 3, 4, 5], [], None, [2], [1, None]],
            "city": ["Rome", "Oslo", "", "Rome", "Bonn"],
            "price": [1.0, 2.0, None, 4.0, -3.0],
            "clicks": [1, 0, 3, 4, 2],
        }
    )


def make_workflow():
    """Ids 0 to 7 of all columns at most."""
    user = ["user", "genres"] >> workflow_ops.Categorify()
    recent = (
        ["recent"]
        >> workflow_ops.Categorify()
        >> workflow_ops.ListSlice(0, WIDTH, pad=True, pad_value=0)
    )
    price = ["price"] >> workflow_ops.FillMissing(0.0) >> workflow_ops.Normalize()
    return Workflow(user + recent + price + ["city", "clicks"]).fit(rows())


def inputs(*names):
    dtypes = {"price": "float32", "city": "string"}
    widths = {"recent": WIDTH}
    return {
        name: keras.Input((widths.get(name, 1),), name=name, dtype=dtypes.get(name, "int64"))
        for name in names
    }


def scored(given, last, **outputs):
    return keras.Model(given, {"score": layers.Dense(1, dtype="float32")(last), **outputs})


def vectors(given, name="recent", **options):
    return layers.Embedding(IDS, 4, **options)(given[name])


def over_lists(pool):
    """A network over a flat list: `pool(vectors, row of each, row lengths, rows)`."""
    given = inputs("genres__values", "genres__nnzs")

    @keras.saving.register_keras_serializable(package="tests", name=pool.__name__)
    class Pooled(layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.table = layers.Embedding(IDS, 4)

        def call(self, pair):
            values, lengths = (tf.reshape(tensor, [-1]) for tensor in pair)
            count = tf.shape(lengths)[0]
            places = tf.repeat(tf.range(count), lengths)
            return tf.ensure_shape(pool(self.table(values), places, lengths, count), (None, 4))

        def compute_output_shape(self, _):
            return (None, 4)

    return scored(given, Pooled()([given["genres__values"], given["genres__nnzs"]]))


def repeat_and_unsorted_segment_sum():
    def pool(values, places, lengths, count):
        total = tf.math.unsorted_segment_sum(values, places, count)
        return total / tf.cast(tf.maximum(lengths, 1), tf.float32)[:, tf.newaxis]

    return over_lists(pool)


def repeat_and_unsorted_segment_mean():
    return over_lists(
        lambda values, places, _, count: tf.math.unsorted_segment_mean(values, places, count)
    )


def segment_mean():
    def pool(values, places, _, count):
        mean = tf.math.segment_mean(values, places)
        return tf.pad(mean, [[0, count - tf.shape(mean)[0]], [0, 0]])

    return over_lists(pool)


def keras_segment_sum():
    given = inputs("genres__values", "genres__nnzs")

    @keras.saving.register_keras_serializable(package="tests")
    class KerasPooled(layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.table = layers.Embedding(IDS, 4)

        def call(self, pair):
            values, lengths = (ops.reshape(tensor, [-1]) for tensor in pair)
            count = ops.shape(lengths)[0]
            places = tf.repeat(ops.arange(count), lengths)
            return tf.ensure_shape(ops.segment_sum(self.table(values), places, count), (None, 4))

        def compute_output_shape(self, _):
            return (None, 4)

    return scored(given, KerasPooled()([given["genres__values"], given["genres__nnzs"]]))


def ragged_reduce_mean():
    def pool(values, _, lengths, __):
        mean = tf.reduce_mean(tf.RaggedTensor.from_row_lengths(values, lengths), axis=1)
        return tf.where(tf.math.is_nan(mean), 0.0, mean)

    return over_lists(pool)


def means_without_a_guard():
    """0 / 0 of an empty list is NaN, in training as well."""

    def pool(values, places, lengths, count):
        total = tf.math.unsorted_segment_sum(values, places, count)
        return total / tf.cast(lengths, tf.float32)[:, tf.newaxis]

    return over_lists(pool)


def masked_average():
    given = inputs("recent")
    return scored(given, layers.GlobalAveragePooling1D()(vectors(given, mask_zero=True)))


def flattened():
    given = inputs("recent")
    return scored(given, layers.Flatten()(vectors(given)))


def recurrent():
    given = inputs("recent")
    return scored(given, layers.GRU(3)(vectors(given)))


def recurrent_with_a_mask():
    given = inputs("recent")
    return scored(given, layers.LSTM(3)(vectors(given, mask_zero=True)))


def bidirectional():
    given = inputs("recent")
    return scored(given, layers.Bidirectional(layers.GRU(3))(vectors(given)))


def attention():
    given = inputs("recent")
    values = vectors(given)
    seen = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(values, values) + values)
    return scored(given, layers.GlobalMaxPooling1D()(seen))


def attention_with_a_mask():
    given = inputs("recent")
    values = vectors(given, mask_zero=True)
    seen = layers.MultiHeadAttention(2, 4)(values, values)
    return scored(given, layers.GlobalAveragePooling1D()(seen))


def convolution():
    given = inputs("recent")
    return scored(given, layers.Flatten()(layers.Conv1D(3, 2, activation="relu")(vectors(given))))


def string_lookup():
    given = inputs("city", "price")
    ids = layers.StringLookup(vocabulary=["Rome", "Oslo"])(given["city"])
    city = layers.Flatten()(layers.Embedding(3, 4)(ids))
    return scored(given, layers.Concatenate()([city, given["price"]]))


def text_vectorization():
    given = inputs("city")
    words = layers.TextVectorization(vocabulary=["rome", "oslo"], output_sequence_length=3)
    return scored(given, layers.Flatten()(layers.Embedding(5, 4)(words(given["city"]))))


def hashing_of_strings():
    given = inputs("city")
    return scored(given, layers.Flatten()(layers.Embedding(9, 4)(layers.Hashing(9)(given["city"]))))


def hashing_of_ids():
    given = inputs("clicks")
    ids = layers.Hashing(9)(given["clicks"])
    return scored(given, layers.Flatten()(layers.Embedding(9, 4)(ids)))


def integer_lookup():
    given = inputs("clicks")
    ids = layers.IntegerLookup(vocabulary=[1, 2, 3])(given["clicks"])
    return scored(given, layers.Flatten()(layers.Embedding(4, 4)(ids)))


def category_encoding():
    given = inputs("user")
    return scored(given, layers.CategoryEncoding(IDS, output_mode="one_hot")(given["user"]))


def multi_hot():
    given = inputs("recent")
    return scored(given, layers.CategoryEncoding(IDS, output_mode="multi_hot")(given["recent"]))


def discretization_and_normalization():
    given = inputs("price")
    buckets = layers.Discretization([-1.0, 0.0, 1.0])(given["price"])
    vector = layers.Flatten()(layers.Embedding(4, 4)(buckets))
    return scored(given, vector + layers.Normalization(mean=1.0, variance=2.0)(given["price"]))


def regularised():
    given = inputs("price", "clicks")
    x = layers.Concatenate()([given["price"], ops.cast(given["clicks"], "float32")])
    x = layers.BatchNormalization()(layers.Dense(8, activation="gelu")(x))
    x = layers.GaussianNoise(0.1)(layers.Dropout(0.5)(layers.LayerNormalization()(x)))
    return scored(given, layers.Dense(4, activation="swish")(x))


def unnormalised_numbers():
    """Weights meet numbers of any size as they come."""
    given = inputs("clicks")
    x = layers.Dense(64, activation="relu")(ops.cast(given["clicks"], "float32"))
    return scored(given, layers.Dense(64)(x))


def subclassed():
    @keras.saving.register_keras_serializable(package="tests")
    class Tower(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.table = layers.Embedding(IDS, 4)
            self.dense = layers.Dense(3, activation="relu")

        def call(self, given):
            user = tf.squeeze(self.table(given["user"]), 1)
            return self.dense(tf.concat([user, given["price"]], axis=1))

    given = inputs("user", "price")
    return scored(given, Tower()(given))


def lambdas():
    given = inputs("price", "user")
    log = layers.Lambda(lambda x: tf.math.log1p(tf.abs(x)), output_shape=(1,))(given["price"])
    one_hot = layers.Lambda(lambda x: tf.one_hot(x[:, 0], IDS), output_shape=(IDS,))(given["user"])
    return scored(given, layers.Concatenate()([log, one_hot]))


def mixed_precision():
    given = inputs("user", "price")
    policy = keras.DTypePolicy("mixed_float16")
    user = layers.Flatten()(layers.Embedding(IDS, 4, dtype=policy)(given["user"]))
    hidden = layers.Dense(8, dtype=policy)(layers.Concatenate(dtype=policy)([user, given["price"]]))
    return scored(given, hidden)


def bfloat16():
    given = inputs("price")
    hidden = layers.Dense(8, activation="relu", dtype=keras.DTypePolicy("mixed_bfloat16"))
    return scored(given, hidden(given["price"]))


def varied():
    """Loops, lookups, and layers with numbered names and random states of their own."""
    given = inputs("recent", "city", "price")
    values = layers.Bidirectional(layers.GRU(3, return_sequences=True))(vectors(given))
    seen = layers.MultiHeadAttention(2, 4, dropout=0.1)(values, values)
    ids = layers.StringLookup(vocabulary=["Rome", "Oslo"])(given["city"])
    city = layers.Flatten()(layers.Embedding(3, 4)(ids))
    pooled = layers.Dropout(0.5)(layers.GlobalAveragePooling1D()(seen))
    return scored(given, layers.Concatenate()([pooled, city, given["price"]]))


def many_outputs():
    given = inputs("user", "price")
    user = layers.Flatten()(layers.Embedding(IDS, 4)(given["user"]))
    return scored(
        given,
        layers.Concatenate()([user, given["price"]]),
        vector=user,
        known=ops.cast(given["user"] > 2, "int64"),
        positive=given["price"] > 0,
        same=layers.Identity()(given["price"]),
    )


def best_of_three():
    given = inputs("user")
    user = layers.Flatten()(layers.Embedding(IDS, 3)(given["user"]))
    best = ops.cast(ops.argmax(user, axis=1, keepdims=True), "int64")
    return keras.Model(given, {"best": best})


def answer_in_words():
    """Keras has the strings of the last layer as integers."""
    best = best_of_three()
    words = layers.StringLookup(vocabulary=["low", "middle"], invert=True, name="word")
    return keras.Model(best.input, {"word": words(best.output["best"])})


def softmax_over_the_batch():
    """An answer of which one value looks at the other rows of a request, here as on a server."""
    given = inputs("price")
    shares = ops.softmax(given["price"], axis=0)
    return keras.Model(given, {"score": layers.Concatenate()([given["price"], shares])})


def place_in_the_batch():
    """A whole number that depends on the other rows of a request."""
    given = inputs("price")
    lower = ops.transpose(given["price"]) < given["price"]
    return keras.Model(given, {"place": ops.sum(ops.cast(lower, "int64"), axis=1, keepdims=True)})


def top_of_a_list():
    given = inputs("recent")
    best, _ = ops.top_k(ops.cast(given["recent"], "float32"), k=2)
    return scored(given, best)


def cumulated():
    given = inputs("recent")
    return scored(given, ops.cumsum(ops.cast(given["recent"], "float32"), axis=1))


def checked_by_itself():
    """It refuses numbers that it was not trained for."""
    given = inputs("price")

    @keras.saving.register_keras_serializable(package="tests")
    class Checked(layers.Layer):
        def call(self, x):
            tf.debugging.assert_less(tf.abs(x), 1e9)
            return x * 1.0

    return scored(given, Checked()(given["price"]))


def together(networks):
    """One network with the outputs of several, by name, which is exported in the time of one."""
    given, outputs = {}, {}
    for name, network in networks.items():
        given |= inputs(*(tensor.name for tensor in network.inputs if tensor.name not in given))
        made = network({tensor.name: given[tensor.name] for tensor in network.inputs})
        outputs |= {f"{name}_{output}": tensor for output, tensor in made.items()}
    return keras.Model(given, outputs)
