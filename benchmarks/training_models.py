"""The models of the training benchmarks: with Keras' own layers, and with ours."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from benchmarks.training_data import Shape
from training import models


def keras_mlp(shape: Shape, ids: str) -> keras.Model:
    """Keras' layers alone: one `Embedding` a column."""
    numbers, scalars = _inputs(shape, ids)
    columns = [
        keras.layers.Flatten()(keras.layers.Embedding(rows, shape.width)(scalars[name]))
        for name, rows in shape.scalars.items()
    ]
    x = keras.layers.Concatenate()([*columns, *numbers.values()])
    return keras.Model({**numbers, **scalars}, _head(_dense(x, shape)))


def our_mlp(shape: Shape, ids: str) -> keras.Model:
    """The same model with our layers."""
    sizes = {name: (rows, shape.width) for name, rows in shape.scalars.items()}
    return models.mlp(
        sizes, shape.numbers, hidden=shape.hidden, id_dtypes=dict.fromkeys(sizes, ids)
    )


def naive_wide_and_deep(shape: Shape, ids: str, hashed: bool = False) -> keras.Model:
    """As with feature columns: each column by itself, lists as sparse tensors, linear weights 0.

    `hashed` makes ids of values in the model, as `categorical_column_with_hash_bucket` does.
    """
    numbers, scalars = _inputs(shape, ids)
    pairs = {
        name: tuple(_ids(name + half, ids) for half in ("__values", "__nnzs"))
        for name in shape.multi
    }
    wide, deep = [], []
    for name, rows in shape.scalars.items():
        column = HashBucket(rows)(scalars[name]) if hashed else scalars[name]
        weights = keras.layers.Embedding(rows, 1, embeddings_initializer="zeros")(column)
        wide.append(keras.layers.Flatten()(weights))
        deep.append(keras.layers.Flatten()(keras.layers.Embedding(rows, shape.width)(column)))
    for name, rows in shape.multi.items():
        values, lengths = pairs[name]
        pair = (HashBucket(rows)(values) if hashed else values, lengths)
        wide.append(SparseLookup(rows, 1, "sum", "zeros")(pair))
        deep.append(SparseLookup(rows, shape.width, "mean", "uniform")(pair))
    x = keras.layers.Concatenate()([*deep, *numbers.values()])
    x = keras.layers.Dense(1)(_dense(x, shape))
    together = keras.layers.Concatenate()(list(numbers.values()))
    linear = keras.layers.Dense(1, kernel_initializer="zeros")(together)
    logit = keras.layers.Add()([x, linear, *wide])
    output = keras.layers.Activation("sigmoid", dtype="float32")(logit)
    return keras.Model({**numbers, **scalars, **pairs}, output)


def our_wide_and_deep(shape: Shape, ids: str) -> keras.Model:
    """The same model with our layers."""
    sizes = tuple(
        {name: (rows, shape.width) for name, rows in columns.items()}
        for columns in (shape.scalars, shape.multi)
    )
    dtypes: dict[str, Any] = dict.fromkeys(shape.scalars, ids)
    dtypes |= dict.fromkeys(shape.multi, (ids, ids))
    return models.wide_and_deep(sizes, shape.numbers, hidden=shape.hidden, id_dtypes=dtypes)


class HashBucket(keras.layers.Layer):
    """Values to ids by their text's hash, which TensorFlow computes on the host."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.supports_jit = False

    def call(self, values: tf.Tensor) -> tf.Tensor:
        """The ids, of the same shape."""
        return tf.strings.to_hash_bucket_fast(tf.strings.as_string(values), self.rows)

    def compute_output_spec(self, values: Any) -> Any:
        """The same shape, int64."""
        return keras.KerasTensor(values.shape, "int64")


class SparseLookup(keras.layers.Layer):
    """What `DenseFeatures` of feature columns did for a list: a sparse tensor, looked up."""

    def __init__(self, rows: int, width: int, combiner: str, initializer: str) -> None:
        super().__init__()
        self.table = self.add_weight(shape=(rows, width), initializer=initializer, autocast=False)
        self.combiner = combiner
        # A sparse tensor of unknown size is nothing that XLA compiles.
        self.supports_jit = False

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The combined vectors, (N, width)."""
        values, lengths = (tf.reshape(part, [-1]) for part in inputs)
        ids = tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.int64), lengths).to_sparse()
        vectors = tf.nn.safe_embedding_lookup_sparse(self.table.value, ids, combiner=self.combiner)
        return tf.cast(tf.ensure_shape(vectors, [None, self.table.shape[1]]), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, int]:
        """(N, width)."""
        return (input_shape[1][0], self.table.shape[1])


def _inputs(shape: Shape, ids: str) -> tuple[dict[str, Any], dict[str, Any]]:
    numbers = {name: keras.Input((1,), name=name) for name in shape.numbers}
    return numbers, {name: _ids(name, ids) for name in shape.scalars}


def _ids(name: str, dtype: str) -> Any:
    return keras.Input((1,), name=name, dtype=dtype)


def _dense(x: Any, shape: Shape) -> Any:
    for width in shape.hidden:
        x = keras.layers.Dense(width, activation="relu")(x)
    return x


def _head(x: Any) -> Any:
    return keras.layers.Dense(1, activation="sigmoid", dtype="float32")(x)
