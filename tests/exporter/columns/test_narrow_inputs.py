"""A column that the network takes in a narrower dtype is requested in that dtype, and ids never change."""

from __future__ import annotations

from datetime import date

import keras
import numpy as np
import pytest

from exporter import ExportError, ServingOptions, export_tensorflow_ensemble
from exporter.columns.served_columns import select_features
from exporter.plan.runtime import RUNTIMES
from training.signature import ModelSignature, TensorSpec
from workflow import ColumnSchema, Schema, Workflow, ops, where
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.schema.column import Column

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
    squared = ["age"] >> ops.LambdaOp(lambda c: c * c) >> ops.Rename(name="squared")
    ids = ["age"] >> ops.Categorify() >> ops.Rename(name="id")
    workflow = Workflow(total + renamed + squared + ids).fit({"age": [31, 31, 7]})
    features = features_of(workflow, scaled="int64", years="int16", squared="int64", id="int64")
    assert [(c.name, c.dtype) for c in features.inputs] == [("age", "int16")]
    made = answers(features, age=np.int16([31, 7, 300]))
    assert made == {
        "scaled": [n * 2**40 for n in (31, 7, 300)],
        "years": [31, 7, 300],
        "squared": [961, 49, 90_000],
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
    message = f"'age' has values from {low} to {high}, which {dtype} does not hold exactly.*the network's input"
    with pytest.raises(ExportError, match=message):
        features_of(stated(low, high), age=dtype)
    assert features_of(stated(low, high), age="int64").outputs[0].dtype == "int64"


def test_an_export_of_ids_beyond_float32_is_refused(export):
    workflow = Workflow(["user"] >> ops.HashBucket(2**24 + 2)).fit(DATA)
    user = keras.Input((1,), name="user", dtype="float32")
    network = keras.Model(user, keras.layers.Dense(1, name="score")(user))
    with pytest.raises(ExportError, match="'user' has values from 0 to 16777217, which float32"):
        export(network, workflow, labels=[])


# Columns that are handed on with their nulls filled, cut or filled up


HANDED_ON = {
    "filled": (["age"] >> ops.FillMissing(0), {"age": [31, None]}, [7, None], [7, 0]),
    "filled twice": (
        ["age"] >> ops.FillMissing(0) >> ops.LambdaOp(lambda c: c.fill_null(3)),
        {"age": [31, None]},
        [7, None],
        [7, 0],
    ),
    "renamed": (
        ["n"] >> ops.FillMissing(-1) >> ops.Rename(name="age"),
        {"n": [31, None]},
        [None, -(2**31) + 1],
        [-1, -(2**31) + 1],
    ),
}


@pytest.mark.parametrize(("node", "data", "sent", "made"), HANDED_ON.values(), ids=HANDED_ON)
def test_a_column_whose_nulls_are_filled_is_sent_narrower(node, data, sent, made):
    features = features_of(Workflow(node).fit(data), age="int32")
    [column] = features.inputs
    assert (column.dtype, column.nullable) == ("int32", True)
    there = np.array([value is not None for value in sent])
    values = Column(np.int32([value or 0 for value in sent]), None if there.all() else there)
    assert NumpyInterpreter(features.program)({column.name: values})["age"].array.tolist() == made


def test_a_list_that_is_cut_and_filled_up_is_sent_narrower():
    workflow = Workflow(["clicks"] >> ops.ListSlice(2, pad=True, pad_value=9)).fit(DATA)
    inputs = (TensorSpec("clicks", "int16", (None, 2)),)
    features = select_features(workflow, ModelSignature(inputs, ()), [], {"clicks": 2})
    assert [(c.name, c.dtype) for c in features.inputs] == [("clicks", "int16")]


def test_the_indicator_beside_a_filled_column_reads_the_narrower_one():
    workflow = Workflow(["age"] >> ops.FillMissing(0, add_binary_cols=True)).fit({"age": [1, None]})
    features = features_of(workflow, age="int8", age_filled="bool")
    assert [(c.name, c.dtype) for c in features.inputs] == [("age", "int8")]
    data = {"age": Column(np.int8([5, 0]), np.array([True, False]))}
    made = {n: c.array.tolist() for n, c in NumpyInterpreter(features.program)(data).items()}
    assert made == {"age": [5, 0], "age_filled": [False, True]}


# Columns that are computed


COMPUTED = {
    "arithmetic": lambda c: c * 2,
    "a filling that is too large": lambda c: c.fill_null(2**40),
    "a computed filling": lambda c: c.fill_null(c * 2),
    "one end only": lambda c: c.clip(0),
    "either of two": lambda c: where(c > 0, c, 0),
    "wider than it was": lambda c: c.cast("int16") * 2**20,
}


@pytest.mark.parametrize("f", COMPUTED.values(), ids=COMPUTED)
@pytest.mark.parametrize("assigned", [False, True])
def test_computed_values_that_a_cast_would_change_are_refused(f, assigned):
    workflow = Workflow(["age"] >> ops.LambdaOp(f)).fit({"age": [31, 7]})
    if assigned:
        workflow.output_dtypes["age"] = "int32"
    message = (
        r"'age' is computed as int64, .* to \d+ from data .*Received: int32.*c\.cast\('int32'\)"
    )
    with pytest.raises(ExportError, match=message):
        features_of(workflow, age="int32")
    del workflow.output_dtypes["age"]
    assert features_of(workflow, age="int64").inputs[0].dtype == "int64"


def test_a_date_that_the_network_takes_narrower_is_refused():
    workflow = Workflow(["day"]).fit({"day": [date(2024, 2, 29)]})
    with pytest.raises(ExportError, match=r"'day' is computed as int64.*Received: int32"):
        features_of(workflow, day="int32")
    assert features_of(workflow, day="int64").inputs[0].time == "date"


WITHIN = {
    "a part of a day": (lambda c: c // 3600 % 24, [2**40], [2**40 // 3600 % 24]),
    "flags": (lambda c: (c > 3).cast("int64") + 1, [2**40, 3], [2, 1]),
    "two ends": (lambda c: c.clip(-100, 100), [2**40, -(2**40), 5], [100, -100, 5]),
    "the nearest, as is said": (lambda c: c.cast("int8"), [2**40, -(2**40)], [127, -128]),
    "one of a table": (lambda c: c.hash_bucket(3) * 0 + 100, [2**40], [100]),
}


@pytest.mark.parametrize(("f", "sent", "made"), WITHIN.values(), ids=WITHIN)
def test_computed_values_that_the_dtype_holds_are_served(f, sent, made):
    features = features_of(Workflow(["age"] >> ops.LambdaOp(f)).fit(DATA), age="int16")
    assert features.inputs[0].dtype == "int64"
    assert answers(features, age=sent) == {"age": made}


def test_computed_values_of_a_stated_range_are_served():
    doubled = ["age"] >> ops.LambdaOp(lambda c: c * 2)
    stated_ages = doubled >> ops.AddProperties({"domain": {"min": 0, "max": 300}})
    features = features_of(Workflow(stated_ages).fit(DATA), age="int16")
    assert answers(features, age=[150]) == {"age": [300]}


def test_numbers_of_a_joined_table_are_held_to_what_the_table_has():
    table = {"user": [7, 9], "year": [1999, 2024]}
    joined = ["user"] >> ops.JoinExternal(table, on="user", columns_ext=["year"])
    workflow = Workflow(joined["year"] >> ops.FillMissing(0)).fit(DATA)
    features = features_of(workflow, year="int16")
    assert answers(features, user=[9, 1]) == {"year": [2024, 0]}
    with pytest.raises(ExportError, match=r"'year' .* from 0 to 2024 from data.*Received: int8"):
        features_of(workflow, year="int8")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_takes_a_filled_column_narrower_and_no_computed_one(runtime, tmp_path):
    filled = ["age"] >> ops.FillMissing(0)
    age = keras.Input((1,), name="age", dtype="int32")
    network = keras.Model(age, keras.layers.Rescaling(1.0, name="score")(age))
    serving = ServingOptions(runtime=runtime)
    workflow = Workflow(filled).fit({"age": [31, None]})
    report = export_tensorflow_ensemble(network, workflow, "ages", tmp_path, [], serving=serving)
    assert {"smallest values", "largest values"} <= set(report.proof.rows)
    assert not report.proof.refused
    config = (tmp_path / "ages" / "config.pbtxt").read_text()
    assert "TYPE_INT32" in config
    assert "TYPE_INT64" not in config
    computed = Workflow(filled >> ops.LambdaOp(lambda c: c + 1)).fit({"age": [31, None]})
    with pytest.raises(ExportError, match="'age' is computed as int64"):
        export_tensorflow_ensemble(network, computed, "more", tmp_path, [], serving=serving)


ROUNDED = {
    "handed on": ["age"],
    "filled": ["age"] >> ops.FillMissing(0),
    "clipped at one end": ["age"] >> ops.Clip(min_value=0),
}


@pytest.mark.parametrize("node", ROUNDED.values(), ids=ROUNDED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_assigned_float_that_rounds_whole_numbers_is_refused(node, dtype):
    """`transform` would refuse such data; in the server nothing could."""
    workflow = Workflow(node).fit({"age": [31, 7]})
    workflow.output_dtypes["age"] = dtype
    with pytest.raises(ExportError, match=rf"'age' is .*int64.*Received: {dtype}.*c\.cast"):
        features_of(workflow, age=dtype)
    del workflow.output_dtypes["age"]
    assert features_of(workflow, age=dtype).inputs[0].dtype == "int64"


def test_an_assigned_float_that_holds_all_whole_numbers_is_served():
    clipped = ["age"] >> ops.Clip(min_value=-(2**24), max_value=2**24)
    meant = ["views"] >> ops.LambdaOp(lambda c: c.cast("float32"))
    workflow = Workflow(clipped + meant).fit(DATA)
    workflow.output_dtypes["age"] = "float32"
    features = features_of(workflow, age="float32", views="float32")
    sent = {"age": [2**40, -(2**40)], "views": [2**24 + 1, 3]}
    assert answers(features, **sent) == {"age": [2.0**24, -(2.0**24)], "views": [2.0**24, 3.0]}
