"""The wire: one request gets one answer from every runtime, whatever is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from movie_rows import SERVED, TRAIN, assert_answers, make_workflow, program_of, wire_tensors
from served_faces import Wires
from wire_faces import RefusedError, opened_faces

from triton_models import healthcheck
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.onnx import to_onnx
from workflow.expressions.program.program import build
from workflow.expressions.tensorflow import WireInterpreter
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES, SchemaError
from workflow.schema.schema import ColumnSchema, Schema
from workflow.wire.format import (
    WireColumn,
    decode,
    encode,
    wire_column,
    wire_inputs,
    wire_outputs,
)
from workflow.wire.request_rules import NNZS, VALUES

FACES = ("python", "tensorflow", "onnx")
NULLABLE = [name for name in DTYPES if name != "bool"]
WORDS = Column(Strings.of(["fun", "", "日本"]))


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    with opened_faces(tmp_path_factory.mktemp("faces")) as faces:
        yield faces


def program_over(columns, outputs):
    """A program of named expressions over named columns: (dtype, is it a list, can it be null)."""
    inputs = Schema([ColumnSchema(name, *of) for name, of in columns.items()])
    made = [
        (ColumnSchema(name, e.type.dtype, e.type.is_list, e.type.nullable), e)
        for name, e in outputs.items()
    ]
    return build(made, inputs)


def default_wires(program):
    inputs = wire_inputs(program.inputs, None).values()
    return Wires([*inputs], [*wire_outputs(program.output_schema, None).values()])


# --- A request with something wrong ----------------------------------------------------------

COLUMNS = {
    "real": ("float32", False, False),
    "second": ("float32", False, False),
    "reals": ("float64", True, False),
    "maybe": ("float32", False, True),
    "whole": ("int32", False, False),
    "plain": ("string", False, False),
    "word": ("string", False, True),
    "words": ("string", True, True),
}
ROWS = {
    "real": np.array([1.5, -0.5, np.inf], "f4"),
    "second": np.array([4, 5, 6], "f4"),
    "reals": np.array([1, 2, 3], "f8"),
    "maybe": np.array([1, 2, 3], "f4"),
    "whole": np.array([1, 2, 3], "i4"),
    "plain": np.array(["fun", "new", ""], object),
    "word": np.array(["fun", "new", ""], object),
    "words": np.array(["fun", "new", "日本"], object),
}
LENGTHS = np.array([2, 0, 1])
# Ids: 1 is null, 2 is unknown, and the words are from 3 on.
ANSWER = {
    "real": [1.5, -0.5, np.inf],
    "second": [4, 5, 6],
    "reals": [2, 4, 6],
    "maybe": [1, 2, 3],
    "whole": [1, 2, 3],
    "plain": [3, 2, 4],
    "word": [3, 2, 4],
    "words": [3, 2, 5],
}


def ids(x):
    return x.lookup(WORDS, first=3, missing=2).fill_null(1)


def hard_program():
    x = {name: source(name, Type(*of)) for name, of in COLUMNS.items()}
    made = {name: ids(x[name]) for name in ("plain", "word", "words")}
    made |= {"real": x["real"], "reals": x["reals"] * 2.0, "maybe": x["maybe"].fill_null(7.0)}
    return program_over(COLUMNS, made | {name: x[name] for name in ("second", "whole")})


def good_request(wires):
    request = {}
    for column in wires.inputs:
        lengths = LENGTHS if column.is_list else None
        request |= encode(column, Column(ROWS[column.name], None, lengths))
    return request


def with_value(name, value):
    """A request whose last value of a column is another; `spoil.column` is its name."""

    def spoil(request):
        values = name if name in request else name + VALUES
        changed = request[values].copy()
        # Of a padded list the value of the last row; behind it is filler.
        changed[-1, 0] = value
        return request | {values: changed}

    spoil.column = name
    return spoil


def no_text_beside_null(request):
    words = request["word"].copy()
    words[:2, 0] = b"\xff", b"a\xc3"
    return request | {"word": words}


def no_text_in_a_list_beside_nulls(request):
    for column, value in {"maybe": np.nan, "word": b"\xff", "words": b"\xfe"}.items():
        request = with_value(column, value)(request)
    return request


no_text_in_a_list_beside_nulls.column = "words"


def with_lengths(name, *lengths):
    return lambda request: request | {name + NNZS: np.array(lengths).reshape(-1, 1)}


def behind_the_end(request):
    """NaN and other words where a padded row has ended; a flat list has no such place."""
    if "reals" not in request:
        return request
    reals, words = request["reals"].copy(), request["words"].copy()
    reals[:, 2:], words[:, 2:] = np.nan, b"fun"
    return request | {"reals": reals, "words": words}


def without_filler(request):
    """Padded rows no wider than the longest list."""
    widest = LENGTHS.max()
    return request | {
        name: request[name][:, :widest] for name in ("reals", "words") if name in request
    }


NO_TEXT = {
    "a byte of no text": b"\xfe",
    "half a character": b"a\xc3",
    "a surrogate": b"\xed\xa0\x80",
    "a NUL in two bytes": b"\xc0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "the null code and more": b"\xff\xff",
}
REFUSED = {
    "NaN": with_value("real", np.nan),
    "NaN in another column": with_value("second", np.nan),
    "NaN in a list": with_value("reals", np.nan),
    "null string where none may be": with_value("plain", b"\xff"),
    **{f"{k}, no null": with_value("plain", v) for k, v in NO_TEXT.items()},
    **{f"{k}, nullable": with_value("word", v) for k, v in NO_TEXT.items()},
    **{f"{k}, in a list": with_value("words", v) for k, v in NO_TEXT.items()},
    "half a character beside a null": no_text_beside_null,
    "a byte of no text in a list, beside nulls": no_text_in_a_list_beside_nulls,
    "too few rows": lambda request: request | {"real": request["real"][:2]},
    "too many rows": lambda request: request | {"whole": request["whole"].repeat(2, 0)},
    "one row for many": lambda request: request | {"word": request["word"][:1]},
    "rows of a list": with_lengths("words", 2, 1),
    "a negative length": with_lengths("reals", 4, -1, 0),
    "lengths that wrap": with_lengths("reals", 2**62, 2**62, 2**63 - 1),
    "too long": with_lengths("words", 2, 0, 100),
}
TAKEN = {
    "as it is": (dict, {}),
    "null": (with_value("maybe", np.nan), {"maybe": [1, 2, 7]}),
    "null string": (with_value("word", b"\xff"), {"word": [3, 2, 1]}),
    "null string in a list": (with_value("words", b"\xff"), {"words": [3, 2, 1]}),
    "the null code where none may be": (
        with_value("whole", -(2**31)),
        {"whole": [1, 2, -(2**31)]},
    ),
    "infinite": (with_value("maybe", -np.inf), {"maybe": [1, 2, -np.inf]}),
    "text of many bytes": (with_value("word", "\U0001f600".encode()), {"word": [3, 2, 2]}),
    "behind the end of rows": (behind_the_end, {}),
    "a list as long as the rows are wide": (without_filler, {}),
}


def laid_out(program, layout):
    wires = default_wires(program)
    inputs = [replace(c, layout=layout) if c.is_list else c for c in wires.inputs]
    return Wires(inputs, wires.outputs)


@pytest.fixture(scope="module", params=["flat", "padded"])
def hard(request, faces):
    """The good request, and every runtime with the program opened."""
    program = hard_program()
    wires = laid_out(program, request.param)
    return good_request(wires), {name: faces[name](program, wires) for name in FACES}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("case", REFUSED)
def test_what_may_not_be_sent_is_refused_by_every_runtime(case, face, hard):
    request, served = hard
    spoil = REFUSED[case]
    with pytest.raises(RefusedError) as refusal:
        served[face](spoil(request))
    if face != "tensorflow":  # Its graph refuses in its own words, here without our backend.
        assert getattr(spoil, "column", "") in str(refusal.value)


@pytest.mark.parametrize("hard", ["flat"], indirect=True)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("lengths", [(1, 0, 1), (0, 0, 0), (3, 0, 1)], ids=str)
def test_lengths_of_a_flat_list_add_up_to_its_values(lengths, face, hard):
    request, served = hard
    with pytest.raises(RefusedError):
        served[face](with_lengths("words", *lengths)(request))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("case", TAKEN)
def test_what_may_be_sent_gets_one_answer_from_every_runtime(case, face, hard):
    request, served = hard
    spoil, changed = TAKEN[case]
    answer = served[face](spoil(request))
    for name, expected in (ANSWER | changed).items():
        is_list = COLUMNS[name][1]
        got = answer[name + VALUES if is_list else name]
        np.testing.assert_array_equal(got.ravel(), expected, name)
        if is_list:
            assert answer[name + NNZS].ravel().tolist() == LENGTHS.tolist()


@pytest.mark.parametrize(
    ("face", "expected"), [("python", [3, 2, 2]), ("tensorflow", [3, 2, 2]), ("onnx", None)]
)
def test_a_nul_is_never_taken_for_the_end_of_a_string(face, expected, hard):
    """Triton's onnxruntime backend would read "fun", so that ours refuses what it would get wrong."""
    request, served = hard
    spoiled = with_value("word", b"fun\0")(request)
    if expected is None:
        with pytest.raises(RefusedError):
            served[face](spoiled)
    else:
        assert served[face](spoiled)["word"].ravel().tolist() == expected


# --- Null, and the dtypes of both halves of a list ---------------------------------------------


def column_with_null(dtype, *, is_list):
    info = DTYPES[dtype]
    if dtype == "string":
        raw = ["", "a", "", "b", "a"]
    elif info.kind == "float":
        raw = [-0.0, 1.5, 0, -1, 1.5]
    else:
        raw = [0, 1, 0, int(np.iinfo(dtype).max) - 1, 1]
    lengths = np.array([2, 0, 3]) if is_list else None
    return Column(np.array(raw, info.numpy), np.array([True, True, False, True, True]), lengths)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize("dtype", NULLABLE)
def test_null_arrives_by_its_code(dtype, is_list, face, faces):
    x = source("x", Type(dtype, is_list))
    data = column_with_null(dtype, is_list=is_list)
    there = data.valid.tolist()
    filling = "z" if dtype == "string" else 7
    filled = [v if here else filling for v, here in zip(data.values, there, strict=True)]
    expected = {"null": [not here for here in there], "filled": filled}
    outputs = {"null": x.is_null(), "filled": x.fill_null(filling)}
    if DTYPES[dtype].kind != "float":
        # The null's code is among the keys, and is null nevertheless.
        code = None if dtype == "string" else wire_column(ColumnSchema("x", dtype), True).null_code
        keys = ["a", "z"] if dtype == "string" else np.array([1, code], dtype)
        table = Column(Strings.of(keys) if dtype == "string" else keys)
        found = [3 if value in ("a", 1) else 2 for value in data.values.tolist()]
        for name, null, as_dtype in (("id", 1, "int32"), ("small", 1000, "int8")):
            looked_up = x.lookup(table, first=3, missing=2).fill_null(null)
            outputs[name] = looked_up.cast(as_dtype)
            saturated = min(null, np.iinfo(as_dtype).max)
            expected[name] = [v if h else saturated for v, h in zip(found, there, strict=True)]
    program = program_over({"x": (dtype, is_list, True)}, outputs)
    wires = default_wires(program)
    answer = faces[face](program, wires)(encode(wires.inputs[0], data))
    for column in wires.outputs:
        assert decode(column, answer).array.tolist() == expected[column.name], column.name


# A null string leaves an ONNX model too, but not by way of Python: see tests/workflow/expressions/onnx/test_wire.py.
@pytest.mark.parametrize(
    ("dtype", "face"), sorted({*product(NULLABLE, FACES)} - {("string", "onnx")})
)
def test_null_leaves_as_its_code(dtype, face, faces):
    program = program_over({"x": (dtype, False, True)}, {"y": source("x", Type(dtype))})
    wires = default_wires(program)
    tensors = encode(wires.inputs[0], column_with_null(dtype, is_list=False))
    answer = faces[face](program, wires)(tensors)["y"]
    assert answer.dtype == tensors["x"].dtype
    np.testing.assert_array_equal(answer, tensors["x"])
    if DTYPES[dtype].kind == "float":
        np.testing.assert_array_equal(np.signbit(answer), np.signbit(tensors["x"]))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("have", ["int32", "int64"])
@pytest.mark.parametrize("want", ["int32", "int64"])
def test_row_lengths_have_a_dtype_of_their_own(have, want, face, faces):
    x = source("x", Type("float32", True, False))
    program = program_over({"x": ("float32", True, False)}, {"y": x * 2})
    wires = Wires(
        [WireColumn("x", "float32", "flat", nnzs_dtype=have)],
        [WireColumn("y", "float32", "flat", nnzs_dtype=want)],
    )
    request = {"x__values": np.array([[1], [2]], "f4"), "x__nnzs": np.array([[2], [0]], have)}
    answer = faces[face](program, wires)(request)
    assert answer["y__values"].tolist() == [[2.0], [4.0]]
    assert answer["y__nnzs"].tolist() == [[2], [0]]
    assert answer["y__nnzs"].dtype == want


# --- What is true of every row ----------------------------------------------------------------


@pytest.fixture(scope="module")
def movies(faces):
    """A workflow with every kind of column, its program, and every runtime with it opened."""
    workflow = make_workflow()
    program = program_of(workflow)
    wires = default_wires(program)
    return workflow, program, {name: faces[name](program, wires) for name in FACES}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("rows", [SERVED, TRAIN, SERVED.head(0)], ids=["hard", "train", "empty"])
def test_runtime_answers_what_transform_gives(rows, face, movies):
    workflow, program, served = movies
    answer = served[face](wire_tensors(program, rows))
    assert_answers(program, answer, workflow.transform(rows).collect())


@pytest.mark.parametrize("face", FACES)
def test_row_alone_is_the_row_in_a_batch(face, movies):
    workflow, program, served = movies
    alone = [SERVED.slice(row, 1) for row in range(SERVED.height)]
    made = pl.collect_all([workflow.transform(row) for row in alone])
    for row, expected in zip(alone, made, strict=True):
        assert_answers(program, served[face](wire_tensors(program, row)), expected)


# --- Descriptions -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [to_onnx, WireInterpreter], ids=["onnx", "tensorflow"])
def test_wire_form_that_does_not_fit_is_an_error(make):
    x = source("x", Type("int64"))
    program = program_over({"x": ("int64", False, True)}, {"x": x})
    wrong = [
        [],
        [WireColumn("y", "int64")],
        [WireColumn("x", "int32", nullable=True)],
        [WireColumn("x", "int64", "flat")],
        [WireColumn("x", "int64")] * 2,
    ]
    for columns in wrong:
        with pytest.raises(SchemaError, match=r"Expected a wire form for each input.* Received"):
            make(program, inputs=columns)
        with pytest.raises(SchemaError, match=r"Expected a wire form for each output.* Received"):
            make(program, outputs=columns)
    with pytest.raises(SchemaError, match="'x' can be null"):
        make(program, outputs=[WireColumn("x", "int64")])
    with pytest.raises(SchemaError, match="'b' is bool, which has no null code"):
        make(program_over({"x": ("int64", False, True)}, {"b": x > 1}))


def test_the_health_check_which_is_one_file_names_the_halves_of_a_list_so_too():
    assert (healthcheck.VALUES, healthcheck.NNZS) == (VALUES, NNZS)
