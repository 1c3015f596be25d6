"""Integers are counted by sorting whole columns, with the result of the operator's query."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from workflow import ops
from workflow.expressions.polars.series import schema_of
from workflow.fit.learn_operators import of_rows_at_once

INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)


def ends(dtype) -> list[int]:
    return [pl.select(end).item() for end in (dtype.min(), dtype.max())]


def rows_of(table: pl.DataFrame) -> list[tuple[object, int]]:
    return sorted(table.rows(), key=repr)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", ["some", "null", "none"])
def test_sorting_counts_what_the_query_counts(dtype, shape):
    values = {"some": [*ends(dtype), 3, None, 0, 3, None, 3], "null": [None, None], "none": []}
    frame = pl.LazyFrame({"a": values[shape]}, schema={"a": dtype})
    operator, columns = ops.Categorify(), schema_of(frame)
    made = of_rows_at_once(operator.tables_of_rows(frame, columns))["a"]
    assert rows_of(made) == sorted(Counter(values[shape]).items(), key=repr)
    asked = operator.partial(frame, columns)["a"].collect()
    assert made.schema == asked.schema
    assert rows_of(made) == rows_of(asked)


def test_what_is_no_column_of_integers_is_left_to_the_query():
    frame = pl.LazyFrame(
        {"text": ["x"], "flag": [True], "list": [[1]], "one": [1], "two": [2], "given": [3]}
    )
    columns = schema_of(frame)
    operator = ops.Categorify(vocabs={"given": [3]}, split_out={"two": 2})
    assert operator.tables_of_rows(frame, columns).keys() == {"one"}


def test_many_columns_are_read_a_few_at_a_time():
    data = {f"c{n}": [n * row % 7 for row in range(100)] for n in range(11)}
    rows = pl.LazyFrame(data)
    wanted = {(n, "sum"): (rows.select(f"c{n}"), total) for n in range(11)}
    made = of_rows_at_once(wanted)
    assert [made[n, "sum"].item() for n in range(11)] == [sum(data[f"c{n}"]) for n in range(11)]
    assert of_rows_at_once({}) == {}


def total(column: pl.DataFrame) -> pl.DataFrame:
    return column.sum()


def test_an_error_of_a_function_is_raised():
    def fail(_: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("cannot")

    with pytest.raises(ValueError, match="cannot"):
        of_rows_at_once({(0, "a"): (pl.LazyFrame({"a": [1]}), fail)})
