"""An assigned dtype changes no value: not at assignment, after another fit, in transform or on loading."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import polars as pl
import pytest

from workflow import ColumnSchema, Schema, Workflow, WorkflowError, WorkflowFormatError, ops
from workflow.schema.dtypes import DTYPES
from workflow.schema.exact_dtypes import holds, inexact

LOWS = [0, -1, -129, -(2**24) - 1, -(2**63)]
HIGHS = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**24, 2**24 + 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1]


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "string"])
def test_a_dtype_holds_what_numpy_gives_back(dtype):
    """At each end and around 0 every whole number has a value of its own, which is read back."""
    want = np.dtype(dtype)
    for low, high in product(LOWS, HIGHS):
        near = {n for end in (low, high, 0) for n in range(end - 3, end + 4) if low <= n <= high}
        if want.kind in "iu":
            limits = np.iinfo(want)
            same = all(limits.min <= n <= limits.max for n in near)
        else:
            same = all(int(want.type(n)) == n for n in near)
        assert holds(DTYPES[dtype], low, high) == same, (low, high)


def ids(count: int) -> dict[str, list[int]]:
    return {"u": list(range(count))}


REFUSED = [
    (300, "int8", "values from 0 to 302, which int8 does not hold exactly; int16"),
    (300, "uint8", "values from 0 to 302, which uint8"),
    (300, "bool", "values from 0 to 302, which bool"),
    (40_000, "int16", "values from 0 to 40002, which int16 does not hold exactly; int32"),
]


@pytest.mark.parametrize(("count", "dtype", "message"), REFUSED)
def test_ids_beyond_a_dtype_are_refused_at_once(count, dtype, message):
    workflow = Workflow(["u"] >> ops.Categorify()).fit(ids(count))
    with pytest.raises(WorkflowError, match=f"Output 'u' has {message}"):
        workflow.output_dtypes["u"] = dtype
    assert workflow.output_schema["u"].dtype == "int64"


def test_hashes_beyond_float32_are_refused():
    hashed = Workflow(["u"] >> ops.HashBucket(2**24 + 2)).fit(ids(3))
    with pytest.raises(WorkflowError, match=r"from 0 to 16777217, which float32 .*int32"):
        hashed.output_dtypes["u"] = "float32"
    hashed.output_dtypes["u"] = "float64"
    exact = Workflow(["u"] >> ops.HashBucket(2**24 + 1)).fit(ids(3))
    exact.output_dtypes["u"] = "float32"
    assert exact.transform(ids(1000)).collect()["u"].n_unique() == 1000


NEGATIVE = Schema([ColumnSchema("u", "int64", properties={"domain": {"min": -5, "max": 100}})])


def test_negative_values_are_refused_for_unsigned_dtypes():
    workflow = Workflow(["u"]).fit({"u": [-5, 100]}, schema=NEGATIVE)
    for dtype in ("uint8", "uint64", "bool"):
        with pytest.raises(WorkflowError, match=f"from -5 to 100, which {dtype} does not hold"):
            workflow.output_dtypes["u"] = dtype
    workflow.output_dtypes["u"] = "int8"
    assert workflow.transform({"u": [-5, 100]}).collect()["u"].to_list() == [-5, 100]


def test_fractions_do_not_become_whole_numbers_unasked():
    workflow = Workflow(["price"]).fit({"price": [1.5, 2.5]})
    for dtype in ("int64", "uint8", "bool"):
        with pytest.raises(
            WorkflowError, match=rf"'price' is float64, and {dtype} holds no fractions.*cast"
        ):
            workflow.output_dtypes["price"] = dtype
    workflow.output_dtypes["price"] = "float32"


def test_whole_numbers_do_not_become_booleans_unasked():
    workflow = Workflow(["n"]).fit({"n": [0, 1, 2]})
    with pytest.raises(WorkflowError, match="'n' is int64, of which bool holds two values"):
        workflow.output_dtypes["n"] = "bool"
    for dtype in ("float32", "float64", "int32", "uint8"):
        workflow.output_dtypes["n"] = dtype


@pytest.mark.parametrize("domain", ["example.com", {"max": 3}, {"min": 0.5, "max": 1.5}, None, 7])
def test_a_domain_of_the_users_own_form_says_nothing(domain):
    column = ColumnSchema("n", "int64", properties={"domain": domain})
    assert inexact(column, DTYPES["int8"]) is None
    workflow = Workflow(["n"]).fit({"n": [3]}, schema=Schema([column]))
    workflow.output_dtypes["n"] = "int8"
    assert workflow.transform({"n": [3]}).collect()["n"].dtype == pl.Int8


# Another fit


def test_ids_that_outgrow_their_dtype_refuse_the_fit_and_leave_the_workflow():
    workflow = Workflow(["u"] >> ops.Categorify()).fit(ids(50))
    workflow.output_dtypes["u"] = "int8"
    before = workflow.transform(ids(50)).collect()
    with pytest.raises(
        WorkflowError, match=r"'u' has values from 0 to 1002, which int8 .*int16.*del workflow"
    ):
        workflow.fit(ids(1_000))
    assert workflow.transform(ids(50)).collect().equals(before)
    with pytest.raises(WorkflowError, match="which int8 does not hold"):
        workflow.fit_transform(ids(1_000))
    workflow.output_dtypes["u"] = "int16"
    assert workflow.fit(ids(1_000)).transform(ids(1_000)).collect()["u"].n_unique() == 1_000
    workflow.output_dtypes["u"] = "float32"
    workflow.fit(ids(100))
    del workflow.output_dtypes["u"]
    assert workflow.fit(ids(70_000)).transform(ids(70_000)).collect()["u"].n_unique() == 70_000


def test_an_output_that_is_gone_refuses_the_fit():
    chosen = ["a", "b"] >> ops.Categorify() >> ops.DropLowCardinality(7)
    workflow = Workflow(chosen).fit({"a": list(range(9)), "b": list(range(9))})
    workflow.output_dtypes["b"] = "int16"
    fewer = {"a": list(range(9)), "b": [1] * 9}
    with pytest.raises(WorkflowError, match=r"'b' is no longer an output.*'int16'"):
        workflow.fit(fewer)
    assert workflow.output_schema.names == ["a", "b"]
    del workflow.output_dtypes["b"]
    assert workflow.fit(fewer).output_schema.names == ["a"]


def test_an_output_of_another_kind_refuses_the_fit():
    workflow = Workflow(["c"]).fit({"c": [1, 2]})
    workflow.output_dtypes["c"] = "int32"
    for values, reason in (
        (["x", "y"], "is string and cannot become int32"),
        ([0.5], "no fractions"),
    ):
        with pytest.raises(WorkflowError, match=f"Output 'c' .*{reason}"):
            workflow.fit({"c": values})
    with pytest.raises(WorkflowError, match="no fractions"):
        workflow.fit_schema(Schema([ColumnSchema("c", "float32")]))
    assert workflow.transform({"c": [5]}).collect()["c"].to_list() == [5]


def test_a_saved_workflow_with_too_narrow_a_dtype_is_not_loaded(tmp_path):
    workflow = Workflow(["u"] >> ops.Categorify()).fit(ids(300))
    workflow.save(tmp_path / "saved")
    document = json.loads((tmp_path / "saved" / "workflow.json").read_text())
    document["output_dtypes"] = {"u": "int8"}
    (tmp_path / "saved" / "workflow.json").write_text(json.dumps(document))
    with pytest.raises(WorkflowFormatError):
        Workflow.load(tmp_path / "saved")


# Data that nobody has stated the range of

WIDE = {"n": [7, -3, None], "l": [[1, 2], [], [200]], "twice": [100, 5, None]}
TOO_WIDE: dict[str, tuple[str, dict[str, list], str]] = {
    "a column that is handed on": ("n", {**WIDE, "n": [7, 2**40, None]}, "from 7 to 1099511627776"),
    "below": ("n", {**WIDE, "n": [-(2**40), 1, None]}, "from -1099511627776 to 1"),
    "a list": ("l", {**WIDE, "l": [[1], [], [2**40, 3]]}, "from 1 to 1099511627776"),
    "a computed column": ("twice", {**WIDE, "twice": [2**30, 5, None]}, "from 10 to 2147483648"),
}


@pytest.fixture
def narrowed() -> Workflow:
    twice = ["twice"] >> ops.LambdaOp(lambda c: c * 2)
    workflow = Workflow(twice + ["n", "l"]).fit(WIDE)
    for name in ("n", "l", "twice"):
        workflow.output_dtypes[name] = "int32"
    return workflow


@pytest.mark.parametrize(("output", "data", "range_"), TOO_WIDE.values(), ids=TOO_WIDE)
def test_data_beyond_an_assigned_dtype_is_refused(output, data, range_, narrowed, tmp_path):
    made = narrowed.transform(WIDE).collect()
    assert made["n"].to_list() == WIDE["n"]
    assert made["l"].to_list() == WIDE["l"]
    assert made["twice"].to_list() == [200, 10, None]
    frame = pl.DataFrame(data)
    frame.write_parquet(tmp_path / "rows.parquet")
    message = f"Output '{output}' has values {range_}, which int32 does not hold"
    for given in (data, frame, frame.lazy(), tmp_path / "rows.parquet"):
        with pytest.raises(WorkflowError, match=message):
            narrowed.transform(given)
        with pytest.raises(WorkflowError, match=message):
            narrowed.transform_to_parquet(given, tmp_path / "made")
        with pytest.raises(WorkflowError, match=message):
            narrowed.fit_transform(given)
    assert not list(tmp_path.glob("made/*.parquet"))


CLAIMS = {"cardinality": 101, "domain": {"min": 0, "max": 100}}
CLAIMED = {
    "by an operator": ["n"] >> ops.LambdaOp(lambda c: c + 0) >> ops.AddProperties(CLAIMS),
    "by the schema of the data": ["n"] >> ops.FillMissing(0),
}


@pytest.mark.parametrize("node", CLAIMED.values(), ids=CLAIMED)
def test_a_users_statement_about_computed_values_is_no_proof(node):
    schema = Schema([ColumnSchema("n", "int64", properties=CLAIMS)])
    workflow = Workflow(node).fit({"n": [1, None]}, schema=schema)
    workflow.output_dtypes["n"] = "int8"
    assert workflow.transform({"n": [100, -128]}).collect()["n"].to_list() == [100, -128]
    with pytest.raises(WorkflowError, match="'n' has values from 1 to 300, which int8 does not"):
        workflow.transform({"n": [1, 300]})


def test_rows_that_a_filter_takes_away_are_not_looked_at():
    kept = ["n"] >> ops.Filter(lambda df: df["n"] < 100)
    workflow = Workflow(kept).fit({"n": [1, 2]})
    workflow.output_dtypes["n"] = "int8"
    assert workflow.transform({"n": [5, 2**40]}).collect()["n"].to_list() == [5]
    with pytest.raises(WorkflowError, match="from -200 to 5, which int8 does not hold"):
        workflow.transform({"n": [5, -200]})


def test_a_range_that_the_user_states_is_looked_at_too():
    workflow = Workflow(["u"]).fit({"u": [1]}, schema=NEGATIVE)
    workflow.output_dtypes["u"] = "int8"
    with pytest.raises(WorkflowError, match="from 1 to 300, which int8 does not hold"):
        workflow.transform({"u": [1, 300]})


def test_training_data_out_of_fold_is_held_to_the_dtype():
    encoded = ["u"] >> ops.TargetEncoding("t")
    workflow = Workflow(encoded + ["u"]).fit({"u": [1, 2], "t": [0.5, 1.0]})
    workflow.output_dtypes["u"] = "int8"
    with pytest.raises(WorkflowError, match="'u' has values from 1 to 300"):
        workflow.fit_transform({"u": [1, 300], "t": [0.5, 1.0]})


# Floats hold whole numbers up to 2**24 or 2**53 exactly, and finite ones up to their largest

EXACT = {"float32": 2**24, "float64": 2**53}
TO_FLOATS: dict[str, Workflow] = {
    "handed on": Workflow(["n"]),
    "filled": Workflow(["n"] >> ops.FillMissing(0)),
    "clipped": Workflow(["n"] >> ops.Clip(min_value=-(2**60))),
    "computed": Workflow(["n"] >> ops.LambdaOp(lambda c: c * 1)),
    "filtered": Workflow(["n"] >> ops.Filter(lambda df: df["n"] != 0)),
}


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("workflow", TO_FLOATS.values(), ids=TO_FLOATS)
def test_whole_numbers_that_a_float_would_round_are_refused(workflow, sign, dtype):
    last = sign * EXACT[dtype]
    workflow.fit({"n": [1, last + sign]})
    workflow.output_dtypes["n"] = dtype
    made = workflow.transform({"n": [1, last]}).collect()["n"]
    assert [int(value) for value in made] == [1, last]
    for refusing in (workflow.transform, workflow.fit_transform):
        with pytest.raises(WorkflowError, match=f"{last + sign}.*, which {dtype} does not hold"):
            refusing({"n": [1, last + sign]})
    del workflow.output_dtypes["n"]


@pytest.mark.parametrize("dtype", EXACT)
def test_whole_numbers_in_lists_that_a_float_would_round_are_refused(dtype):
    last = EXACT[dtype]
    rows = pl.DataFrame({"l": [[1]]})
    workflow = Workflow(["l"]).fit(rows)
    workflow.output_dtypes["l"] = dtype
    assert workflow.transform(rows.clear()).collect().height == 0
    made = workflow.transform({"l": [[1, last], [], [-last]]}).collect()["l"]
    assert [[int(value) for value in row] for row in made] == [[1, last], [], [-last]]
    with pytest.raises(WorkflowError, match=f"'l' has values from 1 to {last + 1}, which {dtype}"):
        workflow.transform({"l": [[1], [], None, [last + 1]]})


def test_narrow_whole_numbers_become_floats_without_a_look_at_them():
    workflow = Workflow(["n"]).fit(pl.DataFrame({"n": pl.Series([1], dtype=pl.Int16)}))
    workflow.output_dtypes["n"] = "float32"
    ends = pl.Series([-(2**15), 2**15 - 1], dtype=pl.Int16)
    made = workflow.transform(pl.DataFrame({"n": ends})).collect()["n"]
    assert made.to_list() == [-(2.0**15), 2.0**15 - 1]


@pytest.mark.parametrize("lists", [False, True])
def test_a_finite_float_that_would_become_infinite_is_refused(lists):
    def data(*values: float | None) -> dict[str, list]:
        return {"x": [[value] for value in values] if lists else list(values)}

    workflow = Workflow(["x"]).fit(data(1.5))
    workflow.output_dtypes["x"] = "float32"
    kept = [0.1, float(np.finfo("float32").max), float("inf"), float("-inf"), float("nan"), None]
    made = workflow.transform(data(*kept)).collect()["x"]
    flat = np.array(made.list.first().to_list() if lists else made.to_list(), float)
    assert np.array_equal(flat, np.array(kept, float).astype("float32"), equal_nan=True)
    absent = pl.DataFrame(data(1.5)).clear(2)
    assert workflow.transform(absent).collect().height == 2
    for value in (1e300, -1e300):
        with pytest.raises(WorkflowError, match=r"'x' has values from .*, which float32"):
            workflow.transform(data(1.5, float("nan"), value, float("inf")))


@pytest.mark.parametrize("dtype", ["int7", "float16", complex, 7])
def test_what_is_no_dtype_is_refused(dtype):
    workflow = Workflow(["n"]).fit({"n": [1]})
    with pytest.raises(WorkflowError, match="Output 'n': Expected a dtype among bool, int8"):
        workflow.output_dtypes["n"] = dtype
    assert workflow.output_dtypes["n"] == "int64"
