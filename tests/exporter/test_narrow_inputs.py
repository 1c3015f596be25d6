"""What the network takes as a narrower dtype is asked of the client as that, and ids never change."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from exporter import ExportError
from exporter.features import select_features
from training.signature import ModelSignature, TensorSpec
from workflow import ColumnSchema, Schema, Workflow, ops
from workflow.expressions.column import Column
from workflow.expressions.numpy import NumpyInterpreter

DATA = {
    "age": [31, 7],
    "views": [2, 5],
    "clicks": [[1, 2], [3]],
    "user": [7, 9],
    "price": [0.5, 1.0],
}


def features_of(workflow, **dtypes):
    inputs = [TensorSpec(name, dtype, (None, 1)) for name, dtype in dtypes.items()]
    return select_features(workflow, ModelSignature(tuple(inputs), ()), [])


def answers(features, **columns):
    arrays = {name: Column(np.asarray(values)) for name, values in columns.items()}
    return {n: c.array.tolist() for n, c in NumpyInterpreter(features.program)(arrays).items()}


def test_a_column_that_is_handed_on_narrower_is_sent_narrower():
    features = features_of(
        Workflow(["age", "views", "price"]).fit(DATA), age="int32", views="int64", price="float32"
    )
    assert {c.name: c.dtype for c in features.inputs} == {
        "age": "int32",
        "views": "int64",
        "price": "float64",
    }
    assert {c.name: c.dtype for c in features.outputs} == {
        "age": "int32",
        "views": "int64",
        "price": "float32",
    }
    assert [str(cast) for cast in features.casts] == [
        "age: int64 -> int32",
        "price: float64 -> float32",
    ]
    sent = {"age": np.int32([5, -(2**31)]), "views": [2**40, 1], "price": [0.5, 1.0]}
    assert answers(features, **sent) == {
        "age": [5, -(2**31)],
        "views": [2**40, 1],
        "price": [0.5, 1.0],
    }


def test_the_narrowest_of_all_casts_on_the_way_is_sent():
    workflow = Workflow(["age", "views"]).fit(DATA)
    workflow.output_dtypes["age"] = "int8"
    workflow.output_dtypes["views"] = "int16"
    features = features_of(workflow, age="int32", views="int64")
    assert {c.name: c.dtype for c in features.inputs} == {"age": "int8", "views": "int16"}
    assert answers(features, age=np.int8([-128]), views=np.int16([300])) == {
        "age": [-128],
        "views": [300],
    }


def test_other_readers_of_a_narrower_input_get_what_they_had():
    total = ["age"] >> ops.LambdaOp(lambda c: c * 2**40) >> ops.Rename(name="scaled")
    renamed = ["age"] >> ops.Rename(name="years")
    ids = ["age"] >> ops.Categorify() >> ops.Rename(name="id")
    workflow = Workflow(total + renamed + ids).fit({"age": [31, 31, 7]})
    features = features_of(workflow, scaled="int64", years="int16", id="int64")
    assert [(c.name, c.dtype) for c in features.inputs] == [("age", "int16")]
    made = answers(features, age=np.int16([31, 7, 300]))
    assert made == {
        "scaled": [n * 2**40 for n in (31, 7, 300)],
        "years": [31, 7, 300],
        "id": [3, 4, 2],
    }


def test_computed_columns_and_ids_do_not_change_what_is_sent():
    saturating = ["age"] >> ops.LambdaOp(lambda c: c.cast("int8"))
    workflow = Workflow(saturating + (["user"] >> ops.Categorify())).fit(DATA)
    features = features_of(workflow, age="int32", user="int8")
    assert {c.name: c.dtype for c in features.inputs} == {"age": "int64", "user": "int64"}
    assert answers(features, age=[300], user=[9]) == {"age": [127], "user": [4]}


def test_lists_that_are_handed_on_narrower_are_sent_narrower():
    specs = [TensorSpec(f"clicks__{half}", "int32", (None, 1)) for half in ("values", "nnzs")]
    workflow = Workflow(["clicks"]).fit(DATA)
    features = select_features(workflow, ModelSignature(tuple(specs), ()), [])
    assert [(c.name, c.dtype) for c in features.inputs] == [("clicks", "int32")]


def stated(low: int, high: int) -> Workflow:
    facts = {"domain": {"min": low, "max": high}}
    schema = Schema([ColumnSchema("age", "int64", properties=facts)])
    return Workflow(["age"]).fit({"age": [max(low, 0)]}, schema=schema)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 300, "int8"),
        (-1, 3, "uint32"),
        (0, 2**24 + 1, "float32"),
        (0, 2**53 + 1, "float64"),
        (0, 2, "bool"),
    ],
)
def test_ids_that_the_network_cannot_tell_apart_are_refused(low, high, dtype):
    message = (
        f"'age' has values from {low} to {high}, which {dtype} does not hold exactly.*keras.Input"
    )
    with pytest.raises(ExportError, match=message):
        features_of(stated(low, high), age=dtype)
    assert features_of(stated(low, high), age="int64").outputs[0].dtype == "int64"


def test_an_export_of_ids_beyond_float32_is_refused(export):
    workflow = Workflow(["user"] >> ops.HashBucket(2**24 + 2)).fit(DATA)
    user = keras.Input((1,), name="user", dtype="float32")
    network = keras.Model(user, keras.layers.Dense(1, name="score")(user))
    with pytest.raises(ExportError, match="'user' has values from 0 to 16777217, which float32"):
        export(network, workflow, labels=[])
