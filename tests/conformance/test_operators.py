"""Every operator, by its own examples: a new operator is covered without a new test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from interpreters import OTHERS, REFERENCE, Interpreter, assert_same
from numpy.testing import assert_allclose
from strategies import SPECIAL

from workflow import Workflow, ops
from workflow.expressions.column import Column, Strings
from workflow.expressions.series import column_schema, polars_dtype, to_column
from workflow.operator import OPERATORS, Example, State
from workflow.schema import Schema

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in sorted(OPERATORS.items())
    for number, example in enumerate(operator.examples())
]


def fit(example: Example) -> Workflow:
    columns = pl.DataFrame(dict(example.columns))
    return Workflow(columns.columns >> example.operator).fit(columns)


def hard_rows(example: Example) -> pl.DataFrame:
    """The example's rows, its unseen ones, and the extremes of every dtype."""
    fitted = pl.DataFrame(dict(example.columns))
    parts = [fitted]
    if example.unseen:
        parts.append(pl.DataFrame(dict(example.unseen), schema=fitted.schema))
    parts += [extremes(fitted.schema, 16), nulls(fitted.schema, 2)]
    return pl.concat(parts)


def extremes(schema: pl.Schema, rows: int) -> pl.DataFrame:
    """Rows that hold the extremes of each dtype, a list in pairs of them."""
    columns = {}
    for name, dtype in schema.items():
        column = column_schema(name, dtype)
        special = itertools.cycle(SPECIAL[column.dtype])
        values = [
            [next(special), next(special)] if column.is_list else next(special) for _ in range(rows)
        ]
        columns[name] = pl.Series(values, dtype=dtype)
    return pl.DataFrame(columns)


def nulls(schema: pl.Schema, rows: int) -> pl.DataFrame:
    return pl.DataFrame({name: [None] * rows for name in schema}, schema=schema)


def as_columns(frame: pl.DataFrame) -> dict[str, Column]:
    return {series.name: to_column(series) for series in frame}


def assert_same_columns(expected: dict[str, Column], received: dict[str, Column]) -> None:
    assert list(expected) == list(received)
    for name, column in expected.items():
        # Elementary arithmetic is exact; what is not may differ by an ulp of float32.
        assert_same(column, received[name], exact=False, what=name)


@pytest.mark.parametrize("name", sorted(set(OPERATORS) | set(ops.__all__)))
def test_operator_has_examples(name: str):
    assert OPERATORS[name].examples(), f"{name}.examples() is empty: nothing tests it."


@pytest.mark.parametrize("interpreter", OTHERS, ids=repr)
@pytest.mark.parametrize("example", EXAMPLES)
def test_interpreters_agree_on_hard_rows(example: Example, interpreter: Interpreter):
    workflow, rows = fit(example), hard_rows(example)
    inputs = as_columns(rows.select(workflow.program.inputs.names))
    expected = REFERENCE.run(workflow.program, inputs)
    assert_same_columns(expected, interpreter.run(workflow.program, inputs))


@pytest.mark.parametrize("example", EXAMPLES)
def test_transform_is_what_is_served(example: Example):
    workflow, rows = fit(example), hard_rows(example)
    inputs = as_columns(rows.select(workflow.program.inputs.names))
    transformed = as_columns(workflow.transform(rows).collect())
    assert_same_columns(REFERENCE.run(workflow.program, inputs), transformed)


@pytest.mark.parametrize("example", EXAMPLES)
def test_row_alone_is_the_row_in_a_batch(example: Example):
    workflow, rows = fit(example), hard_rows(example)
    together = workflow.transform(rows).collect()
    for row in range(rows.height):
        alone = workflow.transform(rows[row]).collect()
        assert_same_columns(as_columns(together[row]), as_columns(alone))


@pytest.mark.parametrize("example", EXAMPLES)
def test_saved_and_loaded_it_is_the_same(example: Example, tmp_path):
    workflow, rows = fit(example), hard_rows(example)
    workflow.save(tmp_path / "first")
    loaded = Workflow.load(tmp_path / "first")
    assert loaded.output_schema == workflow.output_schema
    assert loaded.transform(rows).collect().equals(workflow.transform(rows).collect())
    loaded.save(tmp_path / "second")
    for file in ("workflow.json", "state.safetensors"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


@pytest.mark.parametrize("example", EXAMPLES)
def test_loaded_it_can_be_fitted_again(example: Example, tmp_path):
    workflow = fit(example)
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved").fit(pl.DataFrame(dict(example.columns)))
    for number, state in workflow.states.items():
        assert_same_state(state, loaded.states[number])


@pytest.mark.parametrize("parts", [1, 2, 17])
@pytest.mark.parametrize("example", EXAMPLES)
def test_parts_of_any_size_give_the_same_state(example: Example, parts: int):
    operator = example.operator
    if not operator.learns:
        return
    rows = pl.concat([hard_finite_rows(example)] * 7)
    schema = Schema(column_schema(name, dtype) for name, dtype in rows.schema.items())
    whole = learn(operator, [rows], schema)
    assert_same_state(whole, learn(operator, cut(rows, parts), schema))
    assert_same_state(whole, learn(operator, cut(rows, parts)[::-1], schema))


def hard_finite_rows(example: Example) -> pl.DataFrame:
    """Rows to fit to: values that overflow a moment in float64 are another test's."""
    fitted = pl.DataFrame(dict(example.columns))
    return pl.concat([fitted, nulls(fitted.schema, 1)])


def cut(rows: pl.DataFrame, parts: int) -> list[pl.DataFrame]:
    """Parts of odd sizes, some of them empty."""
    ends = sorted(np.random.default_rng(parts).integers(0, rows.height + 1, parts - 1).tolist())
    bounds = [0, *ends, rows.height]
    return [rows[start:end] for start, end in itertools.pairwise(bounds)]


def learn(operator, parts: Sequence[pl.DataFrame], schema: Schema) -> State:
    partials = [
        {name: query.collect() for name, query in operator.partial(part.lazy(), schema).items()}
        for part in parts
    ]
    stacked = {
        name: pl.concat([partial[name] for partial in partials]).lazy() for name in partials[0]
    }
    merged = operator.merge(stacked, schema)
    return operator.finish({name: query.collect() for name, query in merged.items()}, schema)


def assert_same_state(expected: State, received: State) -> None:
    assert expected.keys() == received.keys()
    for name, column in expected.items():
        other = received[name]
        if isinstance(column.values, Strings) or column.array.dtype.kind != "f":
            assert column.array.tolist() == other.array.tolist(), name
        else:
            assert_allclose(column.array, other.array, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("example", EXAMPLES)
def test_outputs_are_what_the_schema_says(example: Example):
    workflow = fit(example)
    made = workflow.transform(hard_rows(example)).collect()
    schema = workflow.output_schema
    assert made.columns == schema.names
    for column in schema.columns:
        series = made[column.name]
        assert series.dtype == polars_dtype(column.dtype, is_list=column.is_list)
        values = series.explode(empty_as_null=False) if column.is_list else series
        assert column.nullable or values.null_count() == 0
        if domain := column.properties.get("domain"):
            assert domain["min"] <= values.min()
            assert values.max() <= domain["max"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_empty_frame_gives_an_empty_frame(example: Example):
    workflow, empty = fit(example), pl.DataFrame(dict(example.columns)).clear()
    made = workflow.transform(empty).collect()
    assert made.height == 0
    assert made.schema == workflow.transform(hard_rows(example)).collect().schema
    served = REFERENCE.run(
        workflow.program, as_columns(empty.select(workflow.program.inputs.names))
    )
    assert all(column.rows == 0 for column in served.values())


@pytest.mark.parametrize("example", EXAMPLES)
def test_columns_of_nulls_can_be_fitted_and_transformed(example: Example):
    schema = pl.DataFrame(dict(example.columns)).schema
    rows = nulls(schema, 3)
    workflow = Workflow(rows.columns >> example.operator).fit(rows)
    made = workflow.transform(hard_rows(example)).collect()
    inputs = as_columns(hard_rows(example).select(workflow.program.inputs.names))
    assert_same_columns(REFERENCE.run(workflow.program, inputs), as_columns(made))
