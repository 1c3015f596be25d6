"""Every verb gives the same answer on every interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from interpreters import OTHERS, REFERENCE, TRANSCENDENTAL, Interpreter, assert_same
from strategies import chains, programs

from workflow.expressions.column import Column
from workflow.expressions.verbs import VERBS, ExpressionError
from workflow.schema import DTYPES

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def draw_program(data: st.DataObject, verb: str):
    try:
        return data.draw(programs(verb))
    except ExpressionError:
        assume(False)  # parameters that the verb refuses


@pytest.mark.parametrize("interpreter", OTHERS, ids=repr)
@pytest.mark.parametrize("verb", VERBS)
@settings(
    max_examples=60 * int(__import__("os").environ.get("N", "1")),
    deadline=None,
    suppress_health_check=SLOW,
    derandomize=__import__("os").environ.get("N") is None,
)
@given(data=st.data())
def test_verb_is_the_same_on_every_interpreter(
    verb: str, interpreter: Interpreter, data: st.DataObject
):
    program, columns = draw_program(data, verb)
    expected = REFERENCE.run(program, columns)["out"]
    received = interpreter.run(program, columns)["out"]
    exact = verb not in TRANSCENDENTAL
    assert_same(expected, received, exact=exact, what=f"{verb} {program.steps}")


@pytest.mark.parametrize("verb", VERBS)
@settings(
    max_examples=60 * int(__import__("os").environ.get("N", "1")),
    deadline=None,
    suppress_health_check=SLOW,
    derandomize=__import__("os").environ.get("N") is None,
)
@given(data=st.data())
def test_result_is_what_its_static_type_says(verb: str, data: st.DataObject):
    program, columns = draw_program(data, verb)
    column, _ = program.outputs[0]
    made = REFERENCE.run(program, columns)["out"]
    assert made.array.dtype == DTYPES[column.dtype].numpy
    assert made.is_list == column.is_list
    assert made.rows == next(iter(columns.values())).rows
    if not column.nullable:
        assert made.valid is None or made.valid.all()


@pytest.mark.parametrize("verb", VERBS)
@settings(
    max_examples=40 * int(__import__("os").environ.get("N", "1")),
    deadline=None,
    suppress_health_check=SLOW,
    derandomize=__import__("os").environ.get("N") is None,
)
@given(data=st.data())
def test_row_alone_is_the_row_in_a_batch(verb: str, data: st.DataObject):
    program, columns = draw_program(data, verb)
    together = REFERENCE.run(program, columns)["out"]
    for row in range(together.rows):
        alone = REFERENCE.run(program, {n: take_row(c, row) for n, c in columns.items()})["out"]
        assert_same(take_row(together, row), alone, exact=True, what=f"{verb}, row {row}")


@pytest.mark.parametrize("interpreter", OTHERS, ids=repr)
@settings(max_examples=300*int(__import__("os").environ.get("N","1")), deadline=None, suppress_health_check=SLOW, derandomize=__import__("os").environ.get("N") is None)
@given(made=chains())
def test_chain_of_verbs_is_the_same_on_every_interpreter(interpreter: Interpreter, made):
    program, columns = made
    expected = REFERENCE.run(program, columns)["out"]
    received = interpreter.run(program, columns)["out"]
    inexact = any(step.verb in TRANSCENDENTAL for step in program.steps)
    # A last bit that differs grows without bound in what comes after it, so such chains are left out.
    assume(not inexact)
    assert_same(expected, received, exact=True, what=str(program.steps))


def take_row(column: Column, row: int) -> Column:
    """One row of a column."""
    bounds = column.offsets() if column.is_list else np.arange(column.rows + 1)
    part = slice(int(bounds[row]), int(bounds[row + 1]))
    lengths = None if column.lengths is None else column.lengths[row : row + 1]
    valid = None if column.valid is None else column.valid[part]
    return Column(column.array[part], valid, lengths)
