"""Programs in stages: each step is computed once, and queries grow as their programs do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, ops
from workflow.engine.engine import filter_rows, with_outputs
from workflow.expressions.cudf.exceptions import VERBS_ON_GPU
from workflow.expressions.language.tree import Expression, call, source, where
from workflow.expressions.language.types import Type
from workflow.expressions.polars.interpreter import VERBS
from workflow.expressions.polars.series import polars_dtype, to_column
from workflow.expressions.polars.stages import apply, compile_stages, run_stages, stages
from workflow.expressions.program.program import Program, build
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema

# Too far apart for a table by address, so that they are found by their hash.
KEYS = Column(np.arange(0, 2**40, 2**36) + 7)
ROWS = pl.DataFrame({"x": [*KEYS.array.tolist(), 8, -1, None]})


def program_of(expression: Expression, name: str = "x") -> Program:
    made = ColumnSchema("y", expression.type.dtype)
    return build([(made, expression)], Schema([ColumnSchema(name, "int64")]))


def chain(
    step: Callable[[Expression], Expression], length: int, dtype: str = "int64"
) -> Expression:
    """A step applied to its own result, again and again."""
    value = source("x", Type(dtype))
    for _ in range(length):
        value = step(value)
    return value


def looked_up(value: Expression) -> Expression:
    return (value.lookup(KEYS, missing=-1) * 2**36) + 7


# Each names its operand, or an operand of its Polars expression, more than once.
STEPS = {
    "lookup": looked_up,
    "square": lambda c: c * c,
    "where": lambda c: where(c > 5, c - 1, c),
    "where on itself": lambda c: where(c.is_null(), 3, c),
    "divide": lambda c: (c / 3.0).cast("int64"),
    "maximum": lambda c: call("maximum", c, 3) + call("minimum", c, 2),
    "modulo": lambda c: c % 7 + c // 7,
    "clip": lambda c: c.clip(0, 9),
    "cast": lambda c: c.cast("float64").cast("int8").cast("int64"),
    "hash": lambda c: c.hash(),
    "log": lambda c: (c.cast("float64").log1p() + c.exp()).cast("int64"),
    "bucketize": lambda c: c.bucketize(Column(np.array([1, 4, 9]))),
    "gather": lambda c: c.gather(Column(np.arange(9))),
    "gather of a null": lambda c: c.gather(Column(np.arange(9), np.arange(9) > 0)),
}


def names_in_query(program: Program, verbs) -> int:
    """The number of columns that the expressions of a program's query name."""
    compiled = [expression for stage in compile_stages(program, verbs) for expression in stage]
    return sum(len(expression.meta.root_names()) for expression in compiled)


@pytest.mark.parametrize("verbs", [VERBS, VERBS_ON_GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_query_grows_as_its_program_does(step, verbs):
    programs = [program_of(chain(step, length)) for length in (4, 8, 12)]
    sizes = [names_in_query(program, verbs) for program in programs]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    steps = [len(program.steps) for program in programs]
    assert sizes[2] / steps[2] <= 1.2 * sizes[0] / steps[0]


@pytest.mark.parametrize("verbs", [VERBS, VERBS_ON_GPU], ids=["cpu", "gpu"])
def test_tables_of_nulls_keep_their_types(verbs):
    """Polars takes constant columns of nulls for one, whatever their types."""
    dtypes = ("bool", "int64", "float32")
    row = source("x", Type("int64"))
    tables = {name: to_column(pl.Series([None], dtype=polars_dtype(name))) for name in dtypes}
    outputs = [(ColumnSchema(name, name), row.gather(tables[name])) for name in dtypes]
    program = build(outputs, Schema([ColumnSchema("x", "int64")]))
    made = run_stages(pl.LazyFrame({"x": [0, None, 7]}), compile_stages(program, verbs)).collect()
    assert made.schema == {name: polars_dtype(name) for name in dtypes}
    assert made.rows() == [(None,) * len(dtypes)] * 3


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_deep_chain_is_computed_and_right(step):
    """Thirty steps on each other would be 2**30 expressions, if each were written out."""
    program = program_of(chain(step, 30))
    made = apply(ROWS.lazy(), program).collect()["y"]
    one, value = program_of(step(source("x", Type("int64")))), ROWS
    for _ in range(30):
        value = apply(value.lazy(), one).collect().rename({"y": "x"})
    assert made.to_list() == value["x"].to_list()


@pytest.mark.parametrize("lists", [False, True], ids=["scalars", "lists"])
def test_two_thousand_steps_on_each_other_run(lists):
    """Polars' expressions of some hundred levels end the process."""
    value = source("x", Type("float64", is_list=lists))
    for _ in range(1_000):
        value = value.clip(0, 9).fill_null(5.0)
    column = ColumnSchema("x", "float64", is_list=lists)
    program = build([(column.with_(name="y"), value)], Schema([column]))
    rows = pl.DataFrame({"x": [[-1.0, None], [70.0]] if lists else [-1.0, None, 70.0]})
    made = [apply(rows.lazy(), program).collect(engine=e) for e in ("in-memory", "streaming")]
    assert [m["y"].to_list() for m in made] == [[[0, 5], [9]] if lists else [0, 5, 9]] * 2


@pytest.mark.parametrize("lists", [False, True], ids=["scalars", "lists"])
def test_a_lambda_that_uses_its_column_often_runs(lists):
    values = [0.2, 0.7, 3.0, None]
    data = {"c": [values, [], [9.5]] if lists else values}

    def shrunk(c):
        for _ in range(40):
            c = where(c > 0.5, c - 0.125, c)
        return c

    def by_hand(value):
        if value is None:
            return None
        for _ in range(40):
            value = value - 0.125 if value > 0.5 else value
        return value

    workflow = Workflow(["c"] >> ops.LambdaOp(shrunk)).fit(data)
    made = workflow.transform(data).collect()["c"].to_list()
    rows = [[by_hand(v) for v in row] for row in data["c"]] if lists else [*map(by_hand, values)]
    assert made == rows


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_columns_meet_the_elements_of_several_lists(engine):
    """One is made of another list's elements, and all but one share a column."""
    data = {
        "n": [10, 20, 30, None],
        "m": [1, None, 3, 4],
        "a": [[1, 2, 3], [], [4], [5]],
        "b": [[0.5], [1.5, None], [], None],
    }

    def shorter(c, df):
        long = (c * 2 + df["n"]).list_slice(1).list_length()
        return (long - c) * df["n"] + long

    made = (
        (["a"] >> ops.LambdaOp(shorter, "n"))
        + (["b"] >> ops.LambdaOp(lambda c, df: c + df["n"] - df["m"], ["n", "m"]))
        + (["a"] >> ops.Rename(name="c") >> ops.LambdaOp(lambda c, df: c * df["n"], "n"))
        + (["b"] >> ops.Rename(name="d") >> ops.LambdaOp(lambda c, df: df["m"].repeat_as(c), "m"))
    )
    workflow = Workflow(made).fit(data)
    table = workflow.transform(pl.LazyFrame(data)).collect(engine=engine)
    assert table.to_dict(as_series=False) == {
        "a": [[12, 2, -8], [], [-120], [None]],
        "b": [[9.5], [None, None], [], []],
        "c": [[10, 20, 30], [], [120], [None]],
        "d": [[1], [None, None], [], []],
    }


def test_fifty_operators_in_a_row_are_fitted():
    node = ["c"]
    for _ in range(50):
        node = node >> ops.Normalize()
    data = {"c": [1.0, 2.0, 3.0, 4.0]}
    made = Workflow(node).fit(data).transform(data).collect()["c"].to_numpy()
    wanted = (np.arange(4) - 1.5) / np.std(np.arange(4), ddof=1)
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ["@1", "@@1", "@"])
def test_a_column_may_be_named_as_a_stage_would_be(name):
    value = source(name, Type("int64"))
    found = value.lookup(KEYS)
    program = program_of(where(found < 0, value, found), name)
    made = apply(ROWS.lazy().rename({"x": name}), program).collect()["y"]
    assert made.to_list() == [*range(KEYS.rows), 8, -1, None]


def test_a_lookup_that_is_an_output_itself_keeps_its_name():
    found = source("x", Type("int64")).lookup(KEYS)
    columns = [ColumnSchema("row", "int64"), ColumnSchema("twice", "int64")]
    program = build(
        zip(columns, [found, found * 2], strict=True), Schema([ColumnSchema("x", "int64")])
    )
    made = apply(pl.LazyFrame({"x": [7, 8]}), program).collect()
    assert made.to_dict(as_series=False) == {"row": [0, -1], "twice": [0, -2]}


def test_a_column_of_one_use_takes_no_stage():
    price = ["price"] >> ops.FillMissing(0) >> ops.LogOp()
    assert len(stages(Workflow(price).fit({"price": [1.0, None]}).program)) == 1


def test_other_columns_of_a_frame_stay_as_they_are():
    squared = source("x", Type("int64")) * 2
    program = program_of(squared * squared)
    frame = pl.LazyFrame({"x": [1, 2, 3], "@made0": [7, 8, 9], "@1": [4, 5, 6]})
    made, (name,) = with_outputs(frame, program, "cpu")
    assert made.collect().to_dict(as_series=False) == {
        "x": [1, 2, 3],
        "@made0": [7, 8, 9],
        "@1": [4, 5, 6],
        name: [4, 16, 36],
    }
    condition = build(
        [(ColumnSchema("kept", "bool"), squared * squared > 4)],
        Schema([ColumnSchema("x", "int64")]),
    )
    kept = filter_rows(frame, condition, "cpu").collect()
    assert kept.to_dict(as_series=False) == {"x": [2, 3], "@made0": [8, 9], "@1": [5, 6]}


COMPARED = {
    "less": lambda c: np.less(2000, c),
    "equal": lambda c: np.equal(1990, c),
    "not_equal": lambda c: np.not_equal(1990, c),
    "greater_equal": lambda c: np.greater_equal(2000, c + 1),
}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("movies", [1, 2])
@pytest.mark.parametrize("compare", COMPARED.values(), ids=COMPARED)
def test_a_constant_before_a_joined_column_loses_no_row(compare, movies, engine):
    """Polars 1.44 makes one row of all those that have no value in the table."""
    table = pl.DataFrame({"movie": [1, 2], "year": [1990, 2020]})[:movies]
    year = (["movie"] >> ops.JoinExternal(table, on="movie"))["year"]
    workflow = Workflow(year >> ops.LambdaOp(compare)).fit({"movie": [1, 2]})
    for ids in ([7] * 1_000, [*[7] * 1_000, 1]):
        made = workflow.transform({"movie": ids}).collect(engine=engine)["year"].to_list()
        expected = [None if movie == 7 else bool(compare(1990)) for movie in ids]
        assert made == expected
