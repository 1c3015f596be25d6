"""A user's tower of random weights, and catalogues for it."""

import keras
import numpy as np
import polars as pl

from training.models.two_tower import UnitVector
from workflow import Workflow, ops

WIDTH = 8
ROWS = pl.DataFrame(
    {
        "user": ["a", "b", None, "c", "new", "a"],
        "tags": [["x"], [], ["y", "x"], None, ["z", "z"], ["y"]],
        "price": [1.0, None, 3.5, -2.0, 1e3, 0.0],
        "bought": [1, 0, 1, 0, 1, 1],
    }
)
RAW = ROWS.drop("bought")


def make_workflow():
    ids = ["user", "tags"] >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0.5) >> ops.Normalize()
    return Workflow(ids + price + ["bought"]).fit(ROWS)


def make_tower():
    keras.utils.set_random_seed(1)
    inputs = {
        "user": keras.Input((1,), name="user", dtype="int64"),
        "price": keras.Input((1,), name="price"),
    }
    user = keras.layers.Flatten()(keras.layers.Embedding(10, WIDTH)(inputs["user"]))
    x = keras.layers.Concatenate()([user, inputs["price"]])
    vector = UnitVector(name="query_vector")(keras.layers.Dense(WIDTH)(x))
    return keras.Model(inputs, vector)


def catalogue(path, ids, vectors=None):
    if vectors is None:
        vectors = np.random.default_rng(0).normal(size=(len(ids), WIDTH)).astype("float32")
    pl.DataFrame({"id": ids, "vector": vectors.tolist()}, {"id": None, "vector": None}).cast(
        {"vector": pl.List(pl.Float32)}
    ).write_parquet(path)
    return path


def shifted(file):
    """The same vectors under other ids."""
    table = pl.read_parquet(file)
    other = file.with_name(f"other-{file.name}")
    ids = pl.concat([table["id"][1:], table["id"][:1]])
    table.with_columns(id=ids).write_parquet(other)
    return other


def vectors_of(workflow, tower, rows):
    """The tower's vectors for raw rows."""
    made = workflow.transform(rows).select("user", "price").collect()
    return tower.predict_on_batch({name: made[name].to_numpy()[:, None] for name in made.columns})
