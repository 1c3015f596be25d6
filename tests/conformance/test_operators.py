"""Every operator, by its own examples: a new operator is covered without a new test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime

import polars as pl
import pytest
from numpy.testing import assert_allclose
from operator_cases import Case, as_columns, assert_same_columns, cases, cut, nulls

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.polars.series import column_schema, polars_dtype
from workflow.graph.row_set import schema_of
from workflow.operator.feature import State
from workflow.operator.operator import OPERATORS, Operator
from workflow.schema.column import Strings
from workflow.schema.schema import Schema, Tags, time_name


@pytest.mark.parametrize("name", sorted(set(OPERATORS) | set(ops.__all__)))
def test_operator_has_examples(name: str):
    file = OPERATORS[name].__module__.replace(".", "/") + ".py"
    assert OPERATORS[name].examples(), (
        f"Expected examples of {name}, from which these tests are made. Received: none. Write {name}.examples() "
        f"in {file}."
    )


@cases()
def test_saved_and_loaded_it_is_the_same(case: Case, tmp_path):
    case.workflow.save(tmp_path / "first")
    loaded = Workflow.load(tmp_path / "first")
    assert loaded.output_schema == case.workflow.output_schema
    assert loaded.transform(case.hard_rows).collect().equals(case.transformed)
    loaded.save(tmp_path / "second")
    first, second = (
        {f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("first", "second")
    )
    assert first == second


@cases()
def test_loaded_it_can_be_fitted_again(case: Case, tmp_path):
    case.workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved").fit(case.fitted)
    assert loaded.states.keys() == case.workflow.states.keys()
    for number, state in case.workflow.states.items():
        assert_same_state(state, loaded.states[number])


@cases()
def test_outputs_are_what_the_schema_says(case: Case):
    made, schema = case.transformed, case.workflow.output_schema
    assert made.schema == polars_schema(schema)
    for column in schema.columns:
        series = made[column.name]
        values = series.explode(empty_as_null=False) if column.is_list else series
        assert column.nullable or values.null_count() == 0
        if domain := column.properties.get("domain"):
            assert domain["min"] <= values.min()
            assert values.max() <= domain["max"]


def polars_schema(schema: Schema) -> pl.Schema:
    return pl.Schema((c.name, polars_dtype(c.dtype, is_list=c.is_list)) for c in schema.columns)


@cases()
def test_tags_pass_through(case: Case):
    columns = [
        column_schema(name, dtype).with_(tags=("mine", "continuous"))
        for name, dtype in case.fitted.schema.items()
    ]
    made = case.unfitted().fit(case.fitted, schema=Schema(columns)).output_schema
    for column in made.columns:
        assert column.has_tag("mine") or elsewhere(case.operator, column.name, case.fitted.columns)
        assert not (column.has_tag(Tags.CATEGORICAL) and column.has_tag(Tags.CONTINUOUS))


def elsewhere(operator: Operator, name: str, inputs: list[str]) -> bool:
    """Whether a column's tags come from the user's setting, or it is of another table."""
    if isinstance(operator, ops.LambdaOp):
        return operator.tags is not None
    return isinstance(operator, ops.JoinExternal) and name not in inputs


@cases()
def test_empty_frame_gives_an_empty_frame(case: Case):
    made = case.workflow.transform(case.fitted.clear()).collect()
    assert made.height == 0
    assert made.schema == case.transformed.schema


@cases()
def test_columns_of_nulls_can_be_fitted_and_transformed(case: Case):
    workflow = case.fit(nulls(case.fitted.schema, 3))
    made = workflow.transform(case.hard_rows).collect()
    assert made.schema == polars_schema(workflow.output_schema)


@cases()
def test_streamed_from_many_files_it_is_what_one_frame_gives(case: Case, tmp_path):
    for number, part in enumerate(cut(case.hard_rows, 5)):
        part.write_parquet(tmp_path / f"{number}.parquet")
    streamed = case.workflow.transform(tmp_path).collect(engine="streaming")
    assert_same_columns(as_columns(case.transformed), as_columns(streamed))


@pytest.mark.parametrize("parts", [1, 2, 17])
@cases(lambda operator: operator.learns)
def test_parts_of_any_size_give_the_state_of_a_fit(case: Case, parts: int):
    """Also of queries that `fit` asks on a GPU alone; on a CPU it makes their tables by functions."""
    # Values that overflow a moment in float64 are another test's.
    rows = pl.concat([case.fitted, nulls(case.fitted.schema, 1)] * 7)
    workflow = case.fit(rows)
    fitted = workflow.states[len(workflow.nodes) - 1]
    assert_same_state(fitted, learn(case, cut(rows, parts)))
    assert_same_state(fitted, learn(case, cut(rows, parts)[::-1]))


def learn(case: Case, parts: Sequence[pl.DataFrame]) -> State:
    """The operator's state, learnt by its queries over parts that are merged."""
    bound = case.bound()
    operator, schema = bound.operator, schema_of(bound.columns)
    partials = []
    for part in parts:
        own = bound.rows.select(part.lazy(), bound.program)
        queries = operator.partial(own, bound.program.output_schema)
        partials.append({name: query.collect() for name, query in queries.items()})
    stacked = {
        name: pl.concat([partial[name] for partial in partials]).lazy() for name in partials[0]
    }
    merged = operator.merge(stacked, schema) if stacked else {}
    return operator.finish({name: query.collect() for name, query in merged.items()}, schema)


def assert_same_state(expected: State, received: State) -> None:
    assert expected.keys() == received.keys()
    for name, column in expected.items():
        other = received[name]
        assert (column.valid is None) == (other.valid is None), name
        if isinstance(column.values, Strings) or column.array.dtype.kind != "f":
            assert column.array.tolist() == other.array.tolist(), name
        else:
            assert_allclose(column.array, other.array, rtol=1e-9, err_msg=name)


MOMENTS = pl.Series([datetime(2024, 2, 29, 12), None, datetime(1999, 12, 31)] * 2)  # noqa: DTZ001
KINDS_OF_TIMES = [MOMENTS, MOMENTS.dt.replace_time_zone("Asia/Tokyo"), MOMENTS.dt.date()]
# What a function computes with times is a number.
MAKES_NUMBERS_OF_TIMES = (ops.LambdaOp,)


@cases(lambda operator: not isinstance(operator, MAKES_NUMBERS_OF_TIMES))
def test_times_whose_numbers_are_kept_stay_times(case: Case):
    file = type(case.operator).__module__.replace(".", "/") + ".py"
    for name, times in itertools.product(case.fitted.columns, KINDS_OF_TIMES):
        rows = case.fitted.with_columns(as_rows(times, like=case.fitted[name]))
        try:
            workflow = case.fit(rows)
        except WorkflowError:  # it takes no times there
            continue
        numbers = set(times.cast(pl.Datetime("us")).cast(pl.Int64).drop_nulls())
        made = workflow.transform(rows).collect()
        for column in workflow.output_schema.columns:
            values = made[column.name]
            values = values.explode(empty_as_null=False) if column.is_list else values
            if column.info.is_integer and numbers.intersection(values):
                given = workflow.input_schema[name]
                assert column.time == given.time, (
                    f"Expected times as {time_name(given.time)} from {case.name}, since it keeps the "
                    f"numbers of its column {name!r}. Received: column {column.name!r}, {column}. Pass "
                    f"time=feature.schema.time to Feature.of in {file}, or name the operator in "
                    "MAKES_NUMBERS_OF_TIMES of tests/conformance/test_operators.py."
                )


def as_rows(times: pl.Series, like: pl.Series) -> pl.Series:
    """Times in place of a column, in lists if it has lists."""
    every = pl.Series([times.to_list()]) if isinstance(like.dtype, pl.List) else times
    return every.gather([row % len(every) for row in range(len(like))]).alias(like.name)
