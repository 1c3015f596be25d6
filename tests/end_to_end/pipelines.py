"""Pipelines for the end-to-end tests: a workflow, a network and raw rows each."""

from dataclasses import dataclass, field

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from training import layers, make_feature_column_workflow, models, pretrained_table
from workflow import Workflow, get_embedding_sizes, ops

NAMES = [chr(97 + power % 26) * 2**power for power in range(1, 17)]


@dataclass
class Pipeline:
    workflow: Workflow
    model: keras.Model
    rows: pl.DataFrame
    labels: list[str] | None = field(default_factory=list)
    # The rows that the workflow was fitted on, where they are not all.
    learnt: pl.DataFrame | None = None


def movielens():
    """Ids, strings, a list that the client sends, a list that is joined; a label by name."""
    movies = pl.DataFrame(
        {"movieId": [1, 2, 3, 90], "genres": [["Drama", "War"], [], None, ["War", None]]}
    )
    rows = pl.DataFrame(
        {
            "userId": [7, 7, 9, None, 8, 12345],
            "movieId": [1, 2, 3, 90, 77, None],
            "tags": [["fun", "long"], [], None, ["fun", None], ["unseen"], ["fun"] * 300],
            "price": [1.0, None, float("nan"), float("inf"), -1e30, 2.5],
            "rating": [3.0, 4.5, 5.0, 1.0, None, 4.0],
            "clicks": [1, 2, 3, 4, 5, 6],
        }
    )
    joined = ["movieId"] >> ops.JoinExternal(
        movies, on="movieId", columns_ext=["movieId", "genres"]
    )
    ids = (["userId", "tags"] + joined) >> ops.Categorify()
    price = (
        ["price"]
        >> ops.FillMissing(0.0)
        >> ops.LambdaOp(lambda p: p.clip(-10, 10))
        >> ops.Normalize()
    )
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    # The network does not take `clicks`, so no request needs it.
    workflow = Workflow(ids + price + label + ["clicks"]).fit(
        rows.filter(pl.col("userId") != 12345)
    )
    keras.utils.set_random_seed(1)
    model = models.mlp(
        get_embedding_sizes(workflow), ["price"], max_embedding_dim=8, output_name="rating_score"
    )
    workflow.output_dtypes["userId"] = "int32"
    return Pipeline(workflow, model, rows, ["rating"])


def extremes():
    """Every number as it comes: a network that gives back what it takes. The label has a tag."""
    columns = {"i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64"}
    data = {}
    for name, dtype in columns.items():
        limits = np.iinfo(dtype) if name[0] == "i" else np.finfo(dtype)
        data[name] = np.array(
            [limits.min, 0, limits.max, -1, limits.max // 3 if name[0] == "i" else limits.tiny],
            dtype,
        )
    rows = pl.DataFrame(data).with_columns(bought=pl.Series([1, 0, 1, 0, 1]))
    label = ["bought"] >> ops.LambdaOp(lambda bought: bought.cast("int8"), tags=["target"])
    workflow = Workflow(list(columns) + label).fit(rows)
    inputs = {name: keras.Input((1,), name=name, dtype=dtype) for name, dtype in columns.items()}
    outputs = {
        f"{name}_back": keras.layers.Identity(dtype=columns[name])(tensor)
        for name, tensor in inputs.items()
    }
    return Pipeline(workflow, keras.Model(inputs, outputs), rows, None)


def strings():
    """Strings of every length from 2 to 65,536, and what is hard about text."""
    rows = pl.DataFrame({"name": [*NAMES, "", "naïve \U0001f600", " ", "\x00", None, "never seen"]})
    workflow = Workflow(["name"] >> ops.Categorify()).fit(rows.head(-1))
    name = keras.Input((1,), name="name", dtype="int64")
    return Pipeline(
        workflow,
        keras.Model({"name": name}, {"id": keras.layers.Identity(dtype="int64")(name)}),
        rows,
    )


def pairs():
    """Four list columns, one for each pair of dtypes that the two halves can have."""
    dtypes = [(values, nnzs) for values in ("int32", "int64") for nnzs in ("int32", "int64")]
    rows = pl.DataFrame(
        {
            f"{v}_{n}": [[3, 1, 2], [], None, [1] * size, [9, None]]
            for size, (v, n) in enumerate(dtypes)
        },
        schema={f"{v}_{n}": pl.List(pl.Int64) for v, n in dtypes},
    )
    workflow = Workflow(list(rows.columns) >> ops.Categorify()).fit(rows)
    inputs, bags = {}, []
    keras.utils.set_random_seed(2)
    for values, nnzs in dtypes:
        name = f"{values}_{nnzs}"
        inputs[name] = (
            keras.Input((1,), name=f"{name}__values", dtype=values),
            keras.Input((1,), name=f"{name}__nnzs", dtype=nnzs),
        )
        bags.append(layers.EmbeddingBag(16, 4, embeddings_initializer="normal")(inputs[name]))
    output = keras.layers.Dense(1, name="score")(keras.layers.Concatenate()(bags))
    return Pipeline(workflow, keras.Model(inputs, output), rows)


def pretrained():
    """Vectors of another model: looked up in the workflow, and as the table of a frozen layer."""
    vectors = np.random.default_rng(3).normal(size=(40, 3)).astype(np.float32)
    rows = pl.DataFrame(
        {"item": [3, 3, 39, 0, None, 40, -1, 2**50, 7], "city": ["a", "b", "é", None, "", *"abcd"]}
    )
    named = {"city": ["é", "a"], "vector": [[0.5, 1.5], [-2.0, 1e-3]]}
    looked_up = (["item"] >> ops.PretrainedVectors(vectors)) + (
        ["city"] >> ops.PretrainedVectors(named, ids="city")
    )
    ids = ["item", "city"] >> ops.Categorify()
    workflow = Workflow(ids + (looked_up >> ops.Rename(postfix="_vector"))).fit(rows)
    table = pretrained_table(workflow, "item", vectors, initializer="zeros")
    frozen = layers.EmbeddingCollection({"item": table.vectors.shape}, trainable=False)
    inputs = {
        "item": keras.Input((1,), name="item", dtype="int64"),
        "item_vector": keras.Input((3,), name="item_vector"),
        "city_vector": keras.Input((2,), name="city_vector"),
    }
    embedded = frozen(inputs)["item"]
    frozen.set_embedding_table("item", table.vectors)
    columns = [embedded, inputs["item_vector"], inputs["city_vector"]]
    together = keras.layers.Concatenate(name="together")(columns)
    return Pipeline(workflow, keras.Model(inputs, together), rows)


def tensorflow_ids():
    """TensorFlow's columns of ids, with and without hashes, by their names."""
    columns_of = tf.feature_column
    bucket = columns_of.bucketized_column(columns_of.numeric_column("price"), [0.1, 0.7, 18])
    made = [
        columns_of.categorical_column_with_vocabulary_list("city", ["b", "é"], num_oov_buckets=20),
        bucket,
        columns_of.categorical_column_with_hash_bucket("street", 500),
        columns_of.categorical_column_with_hash_bucket("user", 300, tf.int64),
        columns_of.crossed_column(["street", bucket, "user"], 1000, hash_key=39),
    ]
    return {column.name: column for column in made}


def feature_columns():
    """A network over TensorFlow's feature columns, whose workflow was made of them."""
    columns_of = tf.feature_column
    ids = tensorflow_ids()
    columns = [
        *(columns_of.embedding_column(ids[name], 3) for name in ids if name != "price_bucketized"),
        columns_of.indicator_column(ids["price_bucketized"]),
        columns_of.numeric_column("price", default_value=1.0, normalizer_fn=lambda x: x / 3),
        columns_of.numeric_column("place", (2,), default_value=0.5),
    ]
    rows = pl.DataFrame(
        {
            "city": ["b", "é", "", None, "zz", "b", "日本"],
            "street": ["", "a", "é" * 9, "x" * 60, "日本" * 40, None, "b"],
            "user": [7, -1, 2**53, -(2**53), 0, 12345678, None],
            "price": [0.7, 0.1, 18.0, float("nan"), 1e30, None, -3.0],
            "place": [[1.5, 2.5], [], None, [0.1, None], [3.0], [1.0, 2.0], [4.0, 5.0]],
        }
    )
    workflow, made = make_feature_column_workflow(columns)
    workflow.fit(rows)
    inputs = {name: keras.Input((1,), name=name, dtype="int64") for name in ids}
    inputs["price"] = keras.Input((1,), name="price")
    inputs["place"] = keras.Input((2,), name="place")
    keras.utils.set_random_seed(4)
    dense = layers.DenseFeatures(made, embeddings_initializer="normal")(inputs)
    return Pipeline(workflow, keras.Model(inputs, keras.layers.Identity(name="dense")(dense)), rows)


def everything():
    """All kinds of columns in one network, which gives back what of them is exact."""
    movies = pl.DataFrame(
        {"movie": [1, 2, 3, 90], "genres": [["Drama", "War"], [], None, ["War", None]]}
    )
    limits = np.iinfo(np.int64)
    rows = pl.DataFrame(
        {
            "user": [7, 7, 9, None, 8, 12345, -1, limits.max],
            "movie": [1, 2, 3, 90, 77, None, 1, limits.min + 1],
            "word": ["fun", "日本\U0001f600", "", None, " ", "unseen", "fun", "\x01"],
            "tags": [
                *(["fun", "long"], [], None, ["", None]),
                *(["unseen"], ["fun"] * 300, ["long"], ["日本\U0001f600", "fun"]),
            ],
            "recent": [
                *([5, 6, 7, 8], [], None, [5], [None, 6]),
                *([999], [limits.max] * 300, [limits.min + 1]),
            ],
            "only": [[5, 6], [], None, [5], [None, 6], [999], [6], [7]],
            "price": [1.0, None, float("nan"), float("inf"), -1e30, 2.5, 0.1, float("-inf")],
            "whole": [limits.min, 0, limits.max, -1, 2**53 + 1, 1, 2, 3],
            "real": np.array(
                [np.finfo("f4").min, -0.0, np.finfo("f4").max, 1e-30, 1 / 3, 1, np.inf, -np.inf],
                "f4",
            ),
            "rating": [3.0, 4.5, 5.0, 1.0, None, 4.0, 2.0, 3.5],
        }
    )
    joined = ["movie"] >> ops.JoinExternal(movies, on="movie", columns_ext=["movie", "genres"])
    ids = (["user", "word", "tags", "recent"] + joined) >> ops.Categorify()
    only = ["only"] >> ops.Categorify() >> ops.ListSlice(1, pad=True)
    price = ["price"] >> ops.FillMissing(0.0) >> ops.LambdaOp(lambda p: p.clip(-10, 10))
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    workflow = Workflow(ids + only + (price >> ops.Normalize()) + ["whole", "real"] + label)
    learnt = rows.filter(pl.col("user") != 12345)
    workflow.fit(learnt)
    workflow.output_dtypes["user"] = "int32"
    keras.utils.set_random_seed(3)
    shapes = {"user": "int32", "movie": "int64", "word": "int64", "price": "float32"}
    # A list of one value, of which a network takes as many columns as of a single value.
    shapes["only"] = "int64"
    inputs = {name: keras.Input((1,), name=name, dtype=d) for name, d in shapes.items()}
    inputs |= {
        name: keras.Input((1,), name=name, dtype=d)
        for name, d in (("whole", "int64"), ("real", "float32"))
    }
    inputs["recent"] = keras.Input((3,), name="recent", dtype="int64")
    vectors = []
    for name in ("tags", "genres"):
        halves = [
            keras.Input((1,), name=f"{name}__{half}", dtype="int64") for half in ("values", "nnzs")
        ]
        inputs[name] = tuple(halves)
        vectors.append(layers.EmbeddingBag(16, 4, name=f"bag_{name}")(inputs[name]))
    ids = ("user", "movie", "word")
    vectors += [layers.EmbeddingBag(16, 4, name=f"id_{name}")(inputs[name]) for name in ids]
    recent = keras.layers.Embedding(16, 4, name="last")(inputs["recent"])
    vectors += [keras.layers.Flatten()(recent), inputs["price"]]
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()(vectors))
    outputs = {"score": keras.layers.Dense(1, activation="sigmoid")(hidden)}
    for name in ("user", "word", "movie", "recent", "only", "whole", "real"):
        same = keras.layers.Identity(dtype=inputs[name].dtype)
        outputs[f"{name}_back"] = same(inputs[name])
    return Pipeline(workflow, keras.Model(inputs, outputs), rows, ["rating"], learnt)


PIPELINES = {
    "movielens": movielens,
    "extremes": extremes,
    "strings": strings,
    "pairs": pairs,
    "pretrained": pretrained,
    "feature_columns": feature_columns,
}
