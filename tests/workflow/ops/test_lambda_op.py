"""LambdaOp: what can be traced, what cannot, and what the error says then."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from workflow import Tags, Workflow, WorkflowError, ops, where

DATA = {"x": [1.5, -2.0, None, 0.0], "n": [1, 2, None, -4], "s": ["a", None, "b", ""]}


def apply(function, name="x", **options) -> list:
    workflow = Workflow([name] >> ops.LambdaOp(function, **options)).fit(DATA)
    return workflow.transform(DATA).collect()[name].to_list()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda c: (c > 0).cast("int8"), [1, 0, None, 0]),
        (lambda c: where(c > 0, c, -c) + 1, [2.5, 3.0, None, 1.0]),
        (lambda c: 1 - c / 2, [0.25, 2.0, None, 1.0]),
        (lambda c: 3 / (2 * c), [1.0, -0.75, None, math.inf]),
        (lambda c: c.fill_null(9).clip(upper=1), [1.0, -2.0, 1.0, 0.0]),
        (lambda c: ~(c < 0) & (c != 0) | c.is_null(), [True, False, True, False]),
        (lambda c: np.maximum(c, 0).floor(), [1.0, 0.0, None, 0.0]),
        (lambda c: np.abs(np.float64(2) * c), [3.0, 4.0, None, 0.0]),
        (lambda c: np.where is not None and np.log1p(c + 2) * 0, [0.0, 0.0, None, 0.0]),
        (lambda c: np.bitwise_or(c > 0, c < 0), [True, True, None, False]),
    ],
)
def test_what_is_written_is_what_is_computed(function, expected):
    assert apply(function) == expected


def test_a_constant_is_one_value_in_every_row():
    assert apply(lambda c: where(c.is_null(), 1, 1), "n") == [1, 1, 1, 1]
    only_constants = Workflow(["n"] >> ops.LambdaOp(lambda c: where(c.is_null() | True, 7, 7)))
    assert only_constants.fit(DATA).transform({"n": [1, 2]}).collect()["n"].to_list() == [7, 7]


def if_(c):
    if c > 0:
        return c
    return 0


def loop(c):
    return sum(value for value in c)


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (if_, "where\\(condition, a, b\\)"),
        (lambda c: c > 0 and c < 3, "& \\| ~ instead of `and or not`"),
        (lambda c: 0 < c < 3, "& \\| ~"),
        (lambda c: not c, "& \\| ~"),
        (loop, "cannot be looped over"),
        (lambda c: c.astype("int8"), "Did you mean cast"),
        (lambda c: c.fillna(0), "Did you mean fill_null"),
        (lambda c: c.notnull(), r"Did you mean ~column\.is_null\(\)"),
        (lambda c: c.str, "no method 'str'"),
        (lambda c: c.median(), "no method 'median'"),
        (np.arctan, "numpy.arctan has no counterpart"),
        (np.median, "numpy.median has no counterpart"),
        (np.add.reduce, "numpy.add has no counterpart"),
        (math.log, "A column supports"),
        (lambda c: (c > 0) ** 2, "power is defined for numbers"),
        (lambda c: c.pow(2), r"Did you mean column \*\* exponent"),
        (lambda c: c.is_in([1]), "Did you mean isin"),
        (lambda c: c.isin(["a"]), r"isin needs values of the column's kind.*Received: \['a'\]"),
        (lambda c: c.isin([1.0, None]), r"column\.isin\(values\) \| column\.is_null\(\)"),
        (lambda c: c.isin([math.nan]), r"column\.isin\(values\) \| column\.is_null\(\)"),
        (lambda c: c.isin("ab"), "isin takes a list of values"),
        (lambda c: c.isin(3), "isin takes a list of values"),
        (lambda c: c.round(1.5), "round takes from -22 to 22 digits. Received: 1.5"),
        (lambda c: c.round(23), "round takes from -22 to 22 digits. Received: 23"),
        (lambda c: c % 2, "for integers.*Cast the column"),
        (lambda c: c[0], "A column supports"),
        (int, "A column supports"),
        (lambda c: c == None, "Expected a column, a number"),  # noqa: E711
        (lambda c: c + [1], "Expected a column, a number"),
        (lambda c: c + np.ones(3), "Expected a column, a number"),
        (lambda c: c + "a", "cannot mix|defined for numbers"),
        (lambda c: c & 1, "defined for booleans"),
        (lambda c: c.cast("int33"), "Received: 'int33'\\.$"),
        (lambda c, df: c / df["y"], r"No column 'y'\. There are: x\. .*dependency="),
        (lambda c: c.cast(str), "does not go from float64"),
        (lambda c: c.clip(), "lower or an upper"),
        (lambda c: c.clip(3, 1), "in this order"),
        (lambda c: c.clip(float("nan")), "in this order"),
        (lambda c: c.list_length(), "needs a list column"),
        (lambda c: c.cast("int64") + 2**63, "constant of int64"),
        (lambda _: 1, "Expected a column from"),
        (lambda _: (_ for _ in ()).throw(OSError("gone.")), r"OSError: gone\. A column supports"),
        (lambda _: None, "Expected a column from"),
        (lambda c: (c, c), "Expected a column from"),
        (lambda c, frame: c + frame, "Expected a column, a number"),
    ],
)
def test_what_cannot_be_traced_says_what_to_use(function, advice):
    with pytest.raises(WorkflowError, match=f"LambdaOp over x: .*({advice})"):
        apply(function)


@pytest.mark.parametrize("f", [None, 3, "lambda c: c", [abs]])
def test_only_a_function_is_taken(f):
    with pytest.raises(WorkflowError, match="LambdaOp needs f as a function"):
        ops.LambdaOp(f)


SESSIONS = {
    "at": [[1, 5, None], [], None, [7]],
    "now": [10, 20, 30, None],
    "tags": [["a", "b"], None, [], [None]],
    "city": ["a", "b", "a", None],
    "known": [True, None, False, True],
}


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("at", lambda at, df: df["now"] - at, [[9, 5, None], [], [], [None]]),
        ("at", lambda at, df: at / at.list_length() * df["now"], [[10 / 3, 50 / 3, None], [], [], [None]]),
        ("at", lambda at, df: (at.list_slice(1) + df["now"]) - at.list_length(), [[12, None], [], [], []]),
        ("at", lambda at, df: at.fill_null(df["now"]), [[1, 5, 10], [], [], [7]]),
        ("at", lambda at, df: np.minimum(df["now"] - 6, at) ** 2, [[1, 16, None], [], [], [None]]),
        ("at", lambda at, df: where(df["known"], at, -df["now"]), [[1, 5, None], [], [], [7]]),
        ("at", lambda at, df: where(at > 1, df["now"], 0), [[0, 10, None], [], [], [None]]),
        ("tags", lambda tag, df: tag == df["city"], [[True, False], [], [], [None]]),
        ("tags", lambda tag, df: (tag == df["city"]) & df["known"], [[True, False], [], [], [None]]),
        ("city", lambda city, df: city.repeat_as(df["at"]), [["a"] * 3, [], [], [None]]),
    ],
)  # fmt: skip
def test_elements_meet_columns_of_one_value_a_row(name, function, expected, tmp_path):
    others = [n for n in SESSIONS if n != name]
    workflow = Workflow([name] >> ops.LambdaOp(function, dependency=others)).fit(SESSIONS)
    workflow.save(tmp_path / "saved")
    for each in (workflow, Workflow.load(tmp_path / "saved")):
        made = each.transform(SESSIONS).collect()[name]
        assert made.to_list() == [
            row if row is None else [e if e is None else pytest.approx(e) for e in row]
            for row in expected
        ]
        for row in range(4):
            alone = {n: values[row : row + 1] for n, values in SESSIONS.items()}
            rows = pl.DataFrame(alone, schema=pl.DataFrame(SESSIONS).schema)
            assert each.transform(rows).collect()[name].to_list() == made[row : row + 1].to_list()


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda at, df: at == df["tags"].is_null(), "columns of one value a row and what is made of"),
        (lambda at, df: at.repeat_as(df["tags"]), r"one value a row\. Received: list\[int64\]"),
        (lambda _, df: df["now"].repeat_as(df["city"]), "needs a list column. Received: string"),
        (lambda _, df: df["now"].repeat_as(3), "needs a list column. Received: int64"),
        (lambda at, df: at.list_pad(3, df["now"]), "pads with a constant"),
    ],
)  # fmt: skip
def test_elements_of_two_columns_cannot_meet(function, advice):
    with pytest.raises(WorkflowError, match=advice):
        Workflow(["at"] >> ops.LambdaOp(function, ["tags", "now", "city"])).fit(SESSIONS)


def test_elements_can_meet_themselves():
    data = {"l": [[1.0, -2.0], [], None, [None]]}
    workflow = Workflow(["l"] >> ops.LambdaOp(lambda c: where(c < 0, 0, c) + c)).fit(data)
    assert workflow.transform(data).collect()["l"].to_list() == [[2.0, -2.0], [], [], [None]]


def test_columns_of_the_same_elements_meet_in_a_saved_function_too(tmp_path):
    data = {"l": [[1.5, None], [], None, [-2.0]], "x": [1.0, 2.0, 3.0, None]}
    filled = ["l"] >> ops.FillMissing(0, add_binary_cols=True)
    both = (filled + ["x"]) >> ops.LambdaOp(lambda _, df: where(df["l_filled"], df["x"], df["l"]))
    workflow = Workflow(both["l"]).fit(data)
    workflow.save(tmp_path / "saved")
    for each in (workflow, Workflow.load(tmp_path / "saved")):
        assert each.transform(data).collect()["l"].to_list() == [[1.5, 1.0], [], [], [-2.0]]


def test_tags_and_dtype_can_be_given():
    label = ["x"] >> ops.LambdaOp(lambda c: c, dtype=np.float32, tags=(t for t in [Tags.TARGET]))
    workflow = Workflow(label).fit(DATA)
    for _ in range(2):  # a generator of tags is read once
        column = workflow.output_schema["x"]
        assert (column.dtype, column.tags) == ("float32", ("target",))
    with pytest.raises(WorkflowError, match="list of texts"):
        ops.LambdaOp(abs, tags="target")


def test_the_trace_is_saved_and_not_the_function(tmp_path):
    factor = 3
    workflow = Workflow(["n"] >> ops.LambdaOp(lambda c: c * factor, dtype=np.int16)).fit(DATA)
    workflow.save(tmp_path / "saved")
    factor = 4
    loaded = Workflow.load(tmp_path / "saved")
    assert loaded.transform(DATA).collect()["n"].to_list() == [3, 6, None, -12]
    # Fitted to other data, the trace holds for its types.
    other = {"n": pl.Series([5], dtype=pl.Int8)}
    assert loaded.fit(other).transform(other).collect()["n"].to_list() == [15]


def test_deep_functions_need_no_recursion():
    def deep(c):
        for _ in range(3000):
            c = c.clip(0, 3)
        return c

    workflow = Workflow(["n"] >> ops.LambdaOp(deep)).fit(DATA)
    assert len(workflow.program.steps) == 3001


@pytest.mark.parametrize("function", [lambda c: c, lambda c, df=None: c, lambda *c: c[0], np.sin])  # noqa: ARG005
@pytest.mark.parametrize("dependency", ["n", ["n"], ["n"] >> ops.FillMissing(0)])
def test_a_dependency_of_a_function_without_the_frame_is_refused(function, dependency):
    """It would have no effect, except that requests need the column."""
    with pytest.raises(
        WorkflowError, match=r"a column and a frame.*Received: dependency=.*alone\."
    ):
        ops.LambdaOp(function, dependency=dependency)


def test_no_dependency_may_be_named():
    assert apply(lambda c: c + 1, "n", dependency=[]) == [2, 3, None, -3]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, n: x + n, r"Received: a frame of the columns x, n; take one, as in df\['n'\]"),
        (lambda x, n: x.clip(n), r"Received: a frame of the columns x, n; take one"),
        (lambda x, n: x + abs(n), r"It was given a frame of the columns x, n; take one"),
        (lambda x, n: n, r"Expected a column from <lambda>. Received: a frame"),  # noqa: ARG005
        (lambda x, n, s: x, r"Received: one of 3 arguments\. Take further .* df\["),  # noqa: ARG005
    ],
)
def test_a_function_that_takes_the_frame_for_a_column_is_told_what_it_is(function, message):
    with pytest.raises(WorkflowError, match=message) as raised:
        apply(function, dependency=["n"])
    assert "object at 0x" not in str(raised.value)
