"""A workflow with every kind of column, rows that are hard to serve, and how an answer is held to it."""

from __future__ import annotations

import numpy as np
import polars as pl

from workflow import Workflow, ops, where
from workflow.expressions.polars.series import to_column
from workflow.expressions.program.program import with_nullable_inputs
from workflow.wire.format import decode, encode, wire_column

MOVIES = pl.DataFrame(
    {
        "movieId": [10, 20, 30, 40],
        "genres": [["Drama", "Comedy"], [], None, ["Comedy", None]],
        "studio": ["A24", None, "Mubi", "日本"],
    }
)
TRAIN = pl.DataFrame(
    {
        "userId": [7, 7, 9, 2**40, 9, 7],
        "movieId": [10, 20, 10, 40, 30, 10],
        "device": ["phone", "tv", "phone", "", "é", "tv\n"],
        "tags": [["a", "b"], [], ["a"], ["b", "a", "a"], [], ["c"]],
        "price": [1.5, None, 3.25, 1e8, 0.0, -2.0],
        "rating": [5.0, 3.0, 3.5, 1.0, 4.0, 2.0],
    }
)
SERVED = pl.DataFrame(
    {
        "userId": [7, None, -5, 2**40, 9],
        "movieId": [10, 99, None, 40, 20],
        "device": ["phone", None, "radio", "tv\n", "é"],
        "tags": [["a", None, "z"], None, [], ["c", "b"], ["a"]],
        "price": [float("nan"), None, 1e8, -0.0, 7.25],
        "rating": [3.0, 3.1, 2.9, 5.0, 0.5],
    },
    schema=TRAIN.schema,
)


def make_workflow() -> Workflow:
    """Ids of numbers, texts, lists and a joined table; numbers filled, clipped and scaled."""
    joined = ["movieId"] >> ops.JoinExternal(MOVIES, on="movieId")
    ids = (["userId", "device", "tags"] + joined) >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0.5, add_binary_cols=True)
    scaled = price["price"] >> ops.LambdaOp(lambda p: p.clip(-10, 10)) >> ops.Normalize()
    liked = ["rating"] >> ops.LambdaOp(lambda r: where(r > 3, r.log1p(), r / 3))
    made = Workflow(ids + scaled + price["price_filled"] + liked).fit(TRAIN)
    made.output_dtypes["userId"] = "int32"
    return made


def program_of(workflow):
    """The program where `rating`, with which nothing is done about nulls, takes none."""
    return with_nullable_inputs(workflow.program, {"rating": False})


def wire_tensors(program, frame):
    """The tensors of a request for the rows of a frame."""
    tensors = {}
    for column in program.inputs.columns:
        tensors |= encode(wire_column(column, column.nullable), to_column(frame[column.name]))
    return tensors


def assert_answers(program, answer, expected: pl.DataFrame):
    """The answer's tensors hold what the Polars transform gives."""
    for column in program.output_schema.columns:
        wire = wire_column(column, column.nullable)
        assert set(wire.tensors) <= answer.keys()
        got, want = decode(wire, answer), to_column(expected[column.name])
        if want.is_list:
            np.testing.assert_array_equal(got.lengths, want.lengths, column.name)
        assert got.array.dtype == want.array.dtype, column.name
        if want.array.dtype.kind == "f":
            np.testing.assert_allclose(got.array, want.array, rtol=2**-23, err_msg=column.name)
        else:
            np.testing.assert_array_equal(got.array, want.array, column.name)
