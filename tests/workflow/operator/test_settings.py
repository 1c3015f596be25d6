"""Settings of operators: of a wrong type, without sense, and as another library has them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.operator.operator import OPERATORS, Example, Operator

FIRST = {name: examples[0] for name, kind in OPERATORS.items() if (examples := kind.examples())}
SETTINGS = [(name, setting) for name in FIRST for setting in OPERATORS[name].settings()]
VALUES = [
    None,
    True,
    0,
    -1,
    2**64,
    -(10**400),
    0.5,
    math.nan,
    -math.inf,
    1j,
    "",
    "x",
    b"x",
    "\ud800",
    [],
    [[]],
    [None],
    ["x", 1],
    (math.nan,),
    {},
    {"x": None},
    {1: 2},
    {"x": {"y": {"z": 1}}},
    {1, "x"},
    frozenset("x"),
    object(),
    int,
    Exception,
    len,
    lambda: None,
    lambda *_: 1 / 0,
    iter(()),
    np.float32("nan"),
    np.array(3),
    np.zeros((2, 2)),
    np.array(["x"]),
    np.datetime64("nat", "s"),
    np.dtype("datetime64[s]"),
    dt.date(2020, 2, 29),
    pl.Series([0.5, None]),
    pl.DataFrame({"x": [1]}),
    pl.col("x"),
    pl.Datetime("us"),
    pd.Series([1, None]),
    pd.NA,
    ops.LogOp(),
    ops.LogOp,
    ["x"] >> ops.LogOp(),
    ["x", ["y"]],
]


def with_setting(example: Example, setting: str, value: object) -> Operator:
    operator = example.operator
    given = {name: getattr(operator, name) for name in operator.settings()}
    return type(operator)(**given | {setting: value})


@pytest.mark.parametrize(("name", "setting"), SETTINGS, ids=lambda part: part)
def test_a_wrong_setting_is_an_error_of_ours_and_a_right_one_can_be_saved(name, setting, tmp_path):
    """In the constructor, or where the operator meets its columns; what fits can be saved."""
    example = FIRST[name]
    data = pl.DataFrame(dict(example.columns))
    for number, value in enumerate(VALUES):
        try:
            operator = with_setting(example, setting, value)
            workflow = Workflow(list(example.left or data.columns) >> operator).fit(data)
            workflow.save(tmp_path / str(number))
        except WorkflowError:
            continue
        loaded = Workflow.load(tmp_path / str(number))
        assert loaded.output_schema == workflow.output_schema, f"{setting}={value!r}"
        assert loaded.transform(data).collect().equals(workflow.transform(data).collect())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.DatePart(parts=None), r"DatePart needs parts as a list of texts.*None\."),
        (
            lambda: ops.Categorify(vocabs=pl.DataFrame({"user": [7]})),
            "Categorify needs vocabs as a mapping from texts to values or None",
        ),
        (lambda: ops.DatePart(unit=[]), r"DatePart needs unit as a text or None\. Received: \[\]"),
        (
            lambda: ops.JoinExternal({}, "a", columns_ext=3),
            "columns_ext as a list of texts or None",
        ),
        (lambda: ops.LambdaOp(abs, tags=3), "LambdaOp needs tags as a list of texts or None"),
        (lambda: ops.FillMissing(math.inf), "fill_val as True or False, a finite number or a text"),
        (lambda: ops.FillMissing(add_binary_cols=math.nan), "True or False. Received: nan"),
        (lambda: ops.FillMedian(add_binary_cols=math.nan), "True or False. Received: nan"),
        (lambda: ops.ListSlice(2, pad=math.nan), "True or False. Received: nan"),
        (lambda: ops.ListSlice(2, pad=True, pad_value=math.nan), "Received: nan"),
        (lambda: ops.JoinExternal({}, "a", drop_duplicates_ext=math.nan), "Received: nan"),
        (lambda: ops.Clip(math.nan, 1), "Clip needs min_value as a finite number or None"),
        (lambda: ops.Clip("0", 1), "Clip needs min_value as a finite number or None"),
        (lambda: ops.TargetEncoding("t", p_smooth=math.inf), "a finite number. Received: inf"),
        (lambda: ops.TargetEncoding("t", target_mean={"t": 0.5}), "target_mean as a finite number"),
        (lambda: ops.Categorify(dtype="int33"), "one of int8, int16.*Received: 'int33'"),
        (lambda: ops.Categorify(freq_threshold={"a": "2"}), r"'2' as freq_threshold\['a'\]"),
        (lambda: ops.HashBucket(True), "num_buckets as a whole number.*Received: True"),
        (lambda: ops.Normalize("int8"), "one of float32, float64. Received: 'int8'"),
        (lambda: ops.LambdaOp(abs, dtype=pl.Date), "dtype as one of bool, int8.*Received: Date"),
        (lambda: ops.Bucketize({"a": [0, math.nan]}), r"nan as boundaries\['a'\]\[1\]"),
        (lambda: ops.Groupby("a", aggs={"b": 3}), r"aggs as a text.*3 as aggs\['b'\]"),
        (lambda: ops.AddTags(3), "tags as a text, a list of texts or a set of texts"),
    ],
)
def test_the_error_names_operator_setting_and_value(make, message):
    with pytest.raises(WorkflowError, match=message):
        make()


@pytest.mark.parametrize(
    ("operator", "same"),
    [
        (ops.Bucketize(np.array([1, 5])), ops.Bucketize([1, 5])),
        (ops.Bucketize(pl.Series([0.5, 2.0])), ops.Bucketize([0.5, 2.0])),
        (ops.Bucketize(range(3)), ops.Bucketize([0, 1, 2])),
        (ops.Clip(np.float32(0.5), np.int8(3)), ops.Clip(0.5, 3)),
        (ops.ListSlice(np.int64(3), pad=np.bool_(True)), ops.ListSlice(3, pad=True)),
        (ops.Categorify(dtype=np.int32), ops.Categorify(dtype="int32")),
        (ops.Categorify(dtype=None), ops.Categorify(dtype="int64")),
        (ops.Normalize(out_dtype=None), ops.Normalize(out_dtype="float32")),
        (ops.TargetEncoding("y", out_dtype=None), ops.TargetEncoding("y", out_dtype="float32")),
        (ops.Categorify(dtype=pl.UInt16), ops.Categorify(dtype="uint16")),
        (ops.Normalize(float), ops.Normalize("float64")),
        (ops.DatePart(pd.Index(["day", "hour"])), ops.DatePart(["day", "hour"])),
        (ops.AddTags({"b", "a"}), ops.AddTags(["a", "b"])),
        (ops.TargetEncoding("t", kfold=np.uint8(5)), ops.TargetEncoding("t", kfold=5)),
    ],
)
def test_what_other_libraries_call_a_value_is_that_value(operator, same):
    assert operator == same


def test_a_setting_is_the_operators_own():
    buckets = {"a": 5}
    operator = ops.HashBucket(buckets)
    buckets["a"] = 0
    assert isinstance(operator.num_buckets, Mapping)
    assert operator.num_buckets["a"] == 5
