"""A program answers a request as it computes columns, whatever runtime serves it."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from interpreters import CANNOT, REFERENCE, assert_same, equality_of, uses
from run_tensorflow import any_subnormal
from searched import searched
from served_faces import (
    decode_answer,
    encode_request,
    receivable,
    sendable,
    serve_numpy,
    serve_onnx,
    serve_tensorflow,
    wires_of,
)
from strategies import chains, data_of
from test_lanes import lane_inputs, lanes_of
from test_verbs import draw_program

from workflow import Workflow, ops
from workflow.expressions.language.tree import Expression, source
from workflow.expressions.language.types import Type
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import Program, build
from workflow.expressions.program.tracing import inline
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema


def answerable(expression: Expression) -> Expression:
    """An output as a server can send it: a null bool has no code, and onnxruntime hands no null
    string to Python."""
    if not expression.type.nullable:
        return expression
    if expression.type.kind == "bool":
        return expression.cast("int8")
    return expression.fill_null("") if expression.type.kind == "string" else expression


def over_lanes(draw: st.DrawFn, program: Program) -> tuple[Program, dict[str, Column]]:
    """A program over several columns like the one that it was drawn for."""
    inputs = lane_inputs(program)
    data = draw(data_of(inputs.columns, draw(st.integers(0, 4))))
    made = served_program(lanes_of(program, inputs), inputs)
    return made, {name: data[name] for name in made.inputs}


def served_program(outputs: dict[str, Expression], inputs: Schema) -> Program:
    """A program of the outputs that depend on an input, as they can be sent."""
    kept = {
        name: answerable(made)
        for name, made in outputs.items()
        if build([(ColumnSchema(name, made.type.dtype), made)], inputs).inputs
    }
    assume(kept)
    columns = [
        (ColumnSchema(name, made.type.dtype, made.type.is_list, made.type.nullable), made)
        for name, made in kept.items()
    ]
    return build(columns, inputs)


def assert_served_alike(program: Program, data: dict[str, Column], *, padded: bool) -> None:
    """Every runtime answers what the numpy interpreter makes of the columns."""
    wires = wires_of(program, padded=padded)
    data = {column.name: sendable(column, data[column.name]) for column in wires.inputs}
    request = encode_request(wires.inputs, data)
    made = REFERENCE.run(program, data)
    expected = {column.name: receivable(column, made[column.name]) for column in wires.outputs}
    assume(all(c.lengths is None or c.lengths.max(initial=0) <= 8 for c in made.values()))
    # The numpy step refuses to send what its reader would take for a null.
    assume(all(same_nulls(expected[name], made[name]) for name in made))
    faces = {
        f"numpy, lanes {lanes}, packed {'together' if mixed else 'by dtype'}": serve_numpy(
            program, wires, request, lanes=lanes, mixed=mixed
        )
        for lanes in (False, True)
        for mixed in (False, True)
    }
    if not any(("onnx", *use) in CANNOT for use in uses(program)):
        faces["onnx"] = serve_onnx(program, wires, request)
    if not any_subnormal(program, data):
        faces["tensorflow"] = serve_tensorflow(program, wires, request)
    for face, answer in faces.items():
        received = decode_answer(wires.outputs, answer)
        for name, column in expected.items():
            what = f"{face}: {name} {program.steps}"
            assert_same(column, received[name], what=what, equality=equality_of(program))


def same_nulls(one: Column, other: Column) -> bool:
    masks = [np.ones(len(c.array), bool) if c.valid is None else c.valid for c in (one, other)]
    number = one.array.dtype.kind != "f"
    return not number or np.array_equal(*masks)


@searched(2)
@given(padded=st.booleans())
def test_columns_that_are_hashed_side_by_side_are_looked_up_one_by_one(padded: bool):
    rows = {name: [1, 2, 3 + n, 1] for n, name in enumerate("abcdefgh")}
    hashed = [*rows] >> ops.LambdaOp(lambda value: value.hash())
    workflow = Workflow(hashed >> ops.Categorify()).fit(rows)
    data = {name: Column(np.array(values)) for name, values in rows.items()}
    assert_served_alike(workflow.program, data, padded=padded)


@searched(20)
@given(data=st.data(), padded=st.booleans())
def test_chain_of_verbs_is_served_as_it_computes(data: st.DataObject, padded: bool):
    program, _ = data.draw(chains())
    assert_served_alike(*over_lanes(data.draw, program), padded=padded)


@searched(60)
@given(data=st.data(), verb=st.sampled_from(sorted(VERBS)), padded=st.booleans())
def test_verb_is_served_as_it_computes(data: st.DataObject, verb: str, padded: bool):
    program, drawn = draw_program(data, verb)
    sources = {
        n: source(n, Type(c.dtype, c.is_list, c.nullable)) for n, c in program.inputs.items()
    }
    served = served_program(inline(program, sources), program.inputs)
    assert_served_alike(served, {name: drawn[name] for name in served.inputs}, padded=padded)
