"""Every verb gives the same answer on every interpreter."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from interpreters import OTHERS, REFERENCE, Interpreter, assert_same
from strategies import TRANSCENDENTAL, chains, programs

from workflow.expressions.column import Column
from workflow.expressions.verbs import VERBS, ExpressionError
from workflow.schema import DTYPES

# A multiple of the examples, drawn anew: CONFORMANCE_DEPTH=20 searches for minutes.
DEPTH = int(os.environ.get("CONFORMANCE_DEPTH", "1"))


def searched(examples: int) -> settings:
    """How long a property is searched for a counterexample."""
    return settings(
        max_examples=examples * DEPTH,
        derandomize=DEPTH == 1,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def draw_program(data: st.DataObject, verb: str):
    try:
        return data.draw(programs(verb))
    except ExpressionError:
        assume(False)  # parameters that the verb refuses


@pytest.mark.parametrize("interpreter", OTHERS, ids=repr)
@pytest.mark.parametrize("verb", VERBS)
@searched(60)
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
@searched(60)
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
@searched(40)
@given(data=st.data())
def test_row_alone_is_the_row_in_a_batch(verb: str, data: st.DataObject):
    program, columns = draw_program(data, verb)
    together = REFERENCE.run(program, columns)["out"]
    for row in range(together.rows):
        alone = REFERENCE.run(program, {n: take_row(c, row) for n, c in columns.items()})["out"]
        assert_same(take_row(together, row), alone, exact=True, what=f"{verb}, row {row}")


@pytest.mark.parametrize("interpreter", OTHERS, ids=repr)
@searched(300)
@given(made=chains())
def test_chain_of_verbs_is_the_same_on_every_interpreter(interpreter: Interpreter, made):
    program, columns = made
    expected = REFERENCE.run(program, columns)["out"]
    received = interpreter.run(program, columns)["out"]
    assert_same(expected, received, exact=True, what=str(program.steps))


def take_row(column: Column, row: int) -> Column:
    """One row of a column."""
    bounds = column.offsets() if column.is_list else np.arange(column.rows + 1)
    part = slice(int(bounds[row]), int(bounds[row + 1]))
    lengths = None if column.lengths is None else column.lengths[row : row + 1]
    valid = None if column.valid is None else column.valid[part]
    return Column(column.array[part], valid, lengths)
