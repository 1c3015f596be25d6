"""The interpreters that must agree, and what agreement is. A further interpreter is one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from run_onnx import run_folded, run_onnx
from run_tensorflow import run_tensorflow

from workflow.expressions.language.types import ExpressionError
from workflow.expressions.language.verbs import MOST_ULPS, VERBS
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column, to_series
from workflow.expressions.polars.stages import apply
from workflow.expressions.program.program import Program
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES

# Verbs in which interpreters may differ in the last places, and in the sign of a zero.
INEXACT = {name for name, verb in VERBS.items() if not verb.exact}
UNSIGNED_ZERO = {name for name, verb in VERBS.items() if not verb.signed_zero}
Run = Callable[[Program, Mapping[str, Column]], dict[str, Column]]


@dataclass(frozen=True)
class Interpreter:
    """A name for the report, and how a program is run over columns."""

    name: str
    run: Run

    def __repr__(self) -> str:
        return self.name

    def answer(self, program: Program, columns: Mapping[str, Column]) -> dict[str, Column] | None:
        """The interpreter's answer to the columns; None if it refuses the program."""
        if not any((self.name, *use) in CANNOT for use in uses(program)):
            return self.run(program, columns)
        with pytest.raises(ExpressionError, match="Column '"):
            self.run(program, columns)
        return None


# What an interpreter has no operators for: its name, the verb and the dtype of the first operand.
CANNOT = [
    ("onnx", name, dtype)
    for name, verb in VERBS.items()
    for dtype, info in DTYPES.items()
    if info.kind in verb.bytes_of
]


def uses(program: Program) -> set[tuple[str, str]]:
    """The verbs of a program with the dtypes of their first operands."""
    return {
        (step.verb, program.steps[step.operands[0]].type.dtype)
        for step in program.steps
        if step.operands
    }


def run_numpy(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    return NumpyInterpreter(program)(columns)


def run_polars(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    frame = pl.DataFrame([to_series(column, name) for name, column in columns.items()])
    made = apply(frame.lazy(), program).collect()
    return {series.name: to_column(series) for series in made}


REFERENCE = Interpreter("numpy", run_numpy)
OTHERS = [
    Interpreter("polars", run_polars),
    Interpreter("onnx", run_onnx),
    Interpreter("folded", run_folded),
    # The slowest, and it gives up draws with subnormal numbers, last.
    Interpreter("tensorflow", run_tensorflow),
]


@dataclass(frozen=True)
class Equality:
    """The equality that two answers need.

    Attributes:
        exact: whether floats have the same value, or are close.
        near_zero: by how much these differ in any case, in units of the last place of 1.
        signed_zero: whether the sign of a zero counts.
    """

    exact: bool = True
    near_zero: int = 0
    signed_zero: bool = True


SAME = Equality()


def equality_of(program: Program) -> Equality:
    """The equality that a program's answers need, by the rows of its verbs."""
    verbs = {step.verb for step in program.steps}
    near_zero = max((VERBS[verb].near_zero for verb in verbs & VERBS.keys()), default=0)
    signed_zero = verbs.isdisjoint(INEXACT | UNSIGNED_ZERO)
    return Equality(verbs.isdisjoint(INEXACT), near_zero, signed_zero)


def assert_same(
    expected: Column, received: Column, *, what: str, equality: Equality = SAME
) -> None:
    """The same values, or of what is not exact close ones; NaN as NaN, null as null."""
    assert expected.rows == received.rows, what
    if expected.is_list or received.is_list:
        assert _as_list(expected.lengths) == _as_list(received.lengths), f"{what}: lengths"
    np.testing.assert_array_equal(_valid(expected), _valid(received), f"{what}: nulls")
    mask = _valid(expected)
    a, b = expected.array[mask], received.array[mask]
    assert a.dtype == b.dtype, what
    if a.dtype == object:
        assert a.tolist() == b.tolist(), what
    elif a.dtype.kind == "f" and not equality.exact:
        _assert_close(a, b, equality.near_zero, what)
    else:
        np.testing.assert_array_equal(a, b, what)
    if a.dtype.kind == "f" and equality.signed_zero:  # numpy says that -0.0 is 0.0
        zero = a == 0
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), f"{what}: signs")


def _assert_close(a: Array, b: Array, near_zero: int, what: str) -> None:
    """Float64 to a few units in the last place; what was rounded to float32 once to one of it."""
    finite = np.isfinite(a) & np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite], what)
    limits = np.finfo(a.dtype)
    share = float(limits.eps) * (MOST_ULPS if a.dtype == np.float64 else 1)
    a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
    least = max(float(limits.smallest_subnormal), near_zero * float(np.finfo(np.float64).eps))
    tolerance = np.maximum(np.maximum(np.abs(a), np.abs(b)) * share, least)
    assert np.all(np.abs(a - b) <= tolerance), f"{what}: {a} {b}"


def _valid(column: Column) -> Array:
    return np.ones(len(column.values), bool) if column.valid is None else column.valid


def _as_list(lengths: Array | None) -> list[int] | None:
    return None if lengths is None else lengths.tolist()
