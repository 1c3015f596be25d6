"""The networks that are trained, with Keras' own layers and with ours, from equal weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training import compile_model, models, optimizers

Optimizer = Callable[[], Any]
OPTIMIZERS = {"sgd": optimizers.SGD, "adagrad": optimizers.Adagrad, "adam": optimizers.Adam}


@dataclass(frozen=True)
class Shape:
    """The columns of a model, and its layers.

    Attributes:
        continuous: the number of float32 columns.
        cardinalities: of the columns of single ids.
        lists: of the columns of lists.
        length: of every list.
        width: of the embeddings.
        hidden: the widths of the dense layers.
    """

    continuous: int
    cardinalities: tuple[int, ...]
    lists: tuple[int, ...]
    length: int
    width: int
    hidden: tuple[int, ...]

    def shrunk(self, factor: int) -> Shape:
        """The same with smaller tables, for a smaller machine."""

        def small(sizes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(max(4, size // factor) for size in sizes)

        return replace(self, cardinalities=small(self.cardinalities), lists=small(self.lists))

    @property
    def numbers(self) -> list[str]:
        """Names of the continuous columns."""
        return [f"I{number}" for number in range(1, self.continuous + 1)]

    @property
    def scalars(self) -> dict[str, int]:
        """Name -> cardinality of the columns of single ids."""
        return {f"C{number}": rows for number, rows in enumerate(self.cardinalities, 1)}

    @property
    def multi(self) -> dict[str, int]:
        """Name -> cardinality of the columns of lists."""
        return {f"L{number}": rows for number, rows in enumerate(self.lists, 1)}


def _spread(count: int, most: int) -> tuple[int, ...]:
    return tuple(int(rows) for rows in np.geomspace(10, most, count))


CRITEO = Shape(13, _spread(26, 1_000_000), (), 0, 16, (1024, 1024, 1024, 1024))
# Dense layers for a CPU.
SMALL = (256, 128, 64)
# Of the seeds: 10 numeric and 40 categorical columns, three of them 10-hot.
WIDE_AND_DEEP = Shape(10, _spread(37, 4_000_000), (1000, 20_000, 500_000), 10, 32, (1024, 512, 256))


@dataclass(frozen=True)
class Way:
    """A model, and how it is compiled.

    Attributes:
        name: for the table.
        build: makes the model of a shape and a dtype of ids.
        optimizer: makes it.
        split: options of `compile_model`; None for Keras' own step.
        policy: the Keras dtype policy under which the model is built.
    """

    name: str
    build: Callable[[Shape, str], keras.Model]
    optimizer: Optimizer
    split: dict[str, Any] | None = None
    policy: str = "float32"

    def model(self, shape: Shape, ids: str) -> keras.Model:
        """The compiled model, which starts as every model of this shape does."""
        keras.config.set_dtype_policy(self.policy)
        model = self.build(shape, ids)
        keras.config.set_dtype_policy("float32")
        start_equally(model, shape)
        if self.split is None:
            model.compile(self.optimizer(), "binary_crossentropy", jit_compile=False)
        else:
            compile_model(model, self.optimizer(), "binary_crossentropy", **self.split)
        return model


def start_equally(model: keras.Model, shape: Shape) -> None:
    """Give a model the weights that every model of this shape starts from.

    Only so can losses after equal steps be compared. The linear weights of Wide & Deep start at
    zero in both.
    """
    random = np.random.default_rng(0)
    for name, rows in {**shape.scalars, **shape.multi}.items():
        vectors = random.random((rows, shape.width), np.float32) * 0.1 - 0.05
        if any(layer.name == "features" for layer in model.layers):
            model.get_layer("features").embeddings.set_embedding_table(name, vectors)
        else:
            model.get_layer(f"{name}_vectors").weights[0].assign(vectors)
    last = next(
        name for name in ("deep", "output") if name in {layer.name for layer in model.layers}
    )
    for name in [*(f"hidden_{number + 1}" for number in range(len(shape.hidden))), last]:
        kernel, bias = model.get_layer(name).weights
        limit = np.sqrt(6 / sum(kernel.shape))  # as Glorot has it
        kernel.assign(random.uniform(-limit, limit, kernel.shape))
        bias.assign(np.zeros(bias.shape))


def keras_mlp(shape: Shape, ids: str) -> keras.Model:
    """Keras' layers alone: one `Embedding` a column."""
    numbers, scalars = _inputs(shape, ids)
    columns = [
        _vectors(scalars[name], rows, shape.width, f"{name}_vectors")
        for name, rows in shape.scalars.items()
    ]
    x = _dense(keras.layers.Concatenate()([*columns, *numbers.values()]), shape)
    output = keras.layers.Dense(1, activation="sigmoid", dtype="float32", name="output")(x)
    return keras.Model({**numbers, **scalars}, output)


def our_mlp(shape: Shape, ids: str, shard: str | None = None) -> keras.Model:
    """The same model with our layers; its tables divided among workers if wanted."""
    sizes = {name: (rows, shape.width) for name, rows in shape.scalars.items()}
    dtypes = dict.fromkeys(sizes, ids)
    return models.mlp(sizes, shape.numbers, hidden=shape.hidden, id_dtypes=dtypes, shard=shard)


def naive_wide_and_deep(shape: Shape, ids: str, hashed: bool = False) -> keras.Model:
    """Wide & Deep as feature columns make it: each column alone, lists as sparse tensors, linear weights 0.

    `hashed` makes ids of values in the model, as `categorical_column_with_hash_bucket` does.
    """
    numbers, scalars = _inputs(shape, ids)
    pairs = {
        name: tuple(_ids(name + half, ids) for half in ("__values", "__nnzs"))
        for name in shape.multi
    }
    wide, deep = [], []
    for name, rows in shape.scalars.items():
        column = keras.layers.Hashing(rows)(scalars[name]) if hashed else scalars[name]
        wide.append(_vectors(column, rows, 1, f"{name}_weights", "zeros"))
        deep.append(_vectors(column, rows, shape.width, f"{name}_vectors"))
    for name, rows in shape.multi.items():
        values, lengths = pairs[name]
        pair = (keras.layers.Hashing(rows)(values) if hashed else values, lengths)
        wide.append(SparseLookup(rows, 1, "sum", name=f"{name}_weights")(pair))
        deep.append(SparseLookup(rows, shape.width, "mean", name=f"{name}_vectors")(pair))
    x = _dense(keras.layers.Concatenate()([*deep, *numbers.values()]), shape)
    x = keras.layers.Dense(1, name="deep")(x)
    together = keras.layers.Concatenate()(list(numbers.values()))
    linear = keras.layers.Dense(1, kernel_initializer="zeros", name="linear")(together)
    logit = keras.layers.Add()([x, linear, *wide])
    output = keras.layers.Activation("sigmoid", dtype="float32")(logit)
    return keras.Model({**numbers, **scalars, **pairs}, output)


def our_wide_and_deep(shape: Shape, ids: str, shard: str | None = None) -> keras.Model:
    """The same model with our layers; the tables of its deep part divided among workers if wanted."""
    sizes = tuple(
        {name: (rows, shape.width) for name, rows in columns.items()}
        for columns in (shape.scalars, shape.multi)
    )
    dtypes: dict[str, Any] = dict.fromkeys(shape.scalars, ids)
    dtypes |= dict.fromkeys(shape.multi, (ids, ids))
    return models.wide_and_deep(
        sizes, shape.numbers, hidden=shape.hidden, id_dtypes=dtypes, shard=shard
    )


# The shape of each network, and what builds it with our layers.
NETWORKS = {"mlp": (CRITEO, our_mlp), "wide": (WIDE_AND_DEEP, our_wide_and_deep)}


class SparseLookup(keras.layers.Layer):
    """A list as `DenseFeatures` of feature columns took it: a sparse tensor, looked up."""

    def __init__(self, rows: int, width: int, combiner: str, name: str) -> None:
        super().__init__(name=name)
        self.table = self.add_weight(shape=(rows, width), initializer="zeros", autocast=False)
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


def _vectors(ids: Any, rows: int, width: int, name: str, initializer: str = "uniform") -> Any:
    table = keras.layers.Embedding(rows, width, embeddings_initializer=initializer, name=name)
    return keras.layers.Flatten()(table(ids))


def _dense(x: Any, shape: Shape) -> Any:
    for number, width in enumerate(shape.hidden, 1):
        x = keras.layers.Dense(width, activation="relu", name=f"hidden_{number}")(x)
    return x
