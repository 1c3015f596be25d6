"""A lookup makes the dtype that its result is cast to, where that changes no value."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.expressions.polars.narrow_lookups import with_narrow_lookups
from workflow.expressions.polars.series import polars_dtype
from workflow.expressions.polars.stages import apply
from workflow.expressions.program.program import build
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema

NUMBERS = list(range(0, 2000, 10))
VALUES = [1990, 0, None, 7, 10, 1990]


def lookups(program) -> list[str]:
    steps = with_narrow_lookups(program).steps
    return [step.type.dtype for step in steps if step.verb == "lookup"]


def ids_of(values, dtype, *, null: int = 1, missing: int = 2):
    """The program, and the ids worked out in plain Python; casts saturate."""
    texts = isinstance(values, pl.Series)
    keys = Column(Strings.of(map(str, NUMBERS)) if texts else np.array(NUMBERS))
    kind = "string" if texts else "int64"
    found = source("a", Type(kind)).lookup(keys, first=3, missing=missing).fill_null(null)
    outputs = [(ColumnSchema("id", dtype), found.cast(dtype))]
    program = build(outputs, Schema([ColumnSchema("a", kind)]))
    limits = np.iinfo(dtype)
    known = {number: place for place, number in enumerate(NUMBERS, 3)}
    want = [null if v is None else known.get(v, missing) for v in VALUES]
    return program, [int(np.clip(number, limits.min, limits.max)) for number in want]


@pytest.mark.parametrize("texts", [False, True], ids=["numbers", "texts"])
@pytest.mark.parametrize(
    ("dtype", "made"), [("int32", "int32"), ("uint8", "uint8"), ("int8", "int64")]
)
def test_ids_are_the_same_in_a_narrower_dtype(texts, dtype, made):
    given = pl.Series("a", VALUES)
    values = given.cast(pl.String) if texts else VALUES
    program, want = ids_of(values, dtype)
    assert lookups(program) == [made]
    result = apply(pl.LazyFrame({"a": values}), program).collect()
    assert result["id"].to_list() == want
    assert result.schema["id"] == polars_dtype(dtype)


@pytest.mark.parametrize(("null", "missing"), [(-5, 2), (300, 2), (1, -1), (1, 256)])
def test_results_that_do_not_fit_are_cast_as_before(null, missing):
    program, want = ids_of(VALUES, "uint8", null=null, missing=missing)
    assert lookups(program) == ["int64"]
    assert apply(pl.LazyFrame({"a": VALUES}), program).collect()["id"].to_list() == want


def test_a_lookup_with_another_use_keeps_its_dtype():
    found = source("a", Type("int64")).lookup(Column(np.array(NUMBERS)))
    outputs = [("row", "int64", found), ("id", "int8", found.fill_null(1).cast("int8"))]
    made = [(ColumnSchema(name, dtype), expression) for name, dtype, expression in outputs]
    program = build(made, Schema([ColumnSchema("a", "int64")]))
    assert lookups(program) == ["int64"]
    result = apply(pl.LazyFrame({"a": VALUES}), program).collect()
    assert result["row"].to_list() == [199, 0, None, -1, 1, 199]
    assert result["id"].to_list() == [127, 0, 1, -1, 1, 127]
