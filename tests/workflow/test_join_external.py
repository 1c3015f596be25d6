"""JoinExternal: keys as pandas gives them, and names that collide."""

import pandas as pd
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops

PLANES = {"number": [101, 102, 2**53], "seats": [150, 300, 7]}


@pytest.mark.parametrize("dtype", ["float64", "Float64", "float32"])
def test_keys_of_integers_may_come_as_floats(dtype):
    """As pandas has integers beside a missing one; a fraction is no key, and is not cut to one."""
    rows = pd.DataFrame({"number": pd.Series([102.0, None, 101.0, 101.5, 99.0], dtype=dtype)})
    workflow = Workflow(["number"] >> ops.JoinExternal(PLANES, on="number"))
    made = workflow.fit_transform(pl.from_pandas(rows)).collect()
    assert made["seats"].to_list() == [300, None, 150, None, None]
    made = workflow.transform(rows).collect()
    assert made["seats"].to_list() == [300, None, 150, None, None]


def test_floats_beyond_every_integer_find_nothing():
    table = {"number": [2**63 - 1, -(2**63), 2**53], "seats": [1, 2, 3]}
    rows = pl.DataFrame({"number": [2.0**63, -(2.0**63), 2.0**53, float("inf"), float("-inf")]})
    workflow = Workflow(["number"] >> ops.JoinExternal(table, on="number"))
    made = workflow.fit_transform(rows).collect()
    assert made["seats"].to_list() == [None, 2, 3, None, None]


def test_a_name_of_both_tables_says_what_to_do():
    rows = {"number": [101], "seats": [9]}
    both = ["number", "seats"] >> ops.JoinExternal(PLANES, on="number")
    with pytest.raises(WorkflowError, match=r"'seats' is in the data .* columns_ext, or rename"):
        Workflow(both).fit(rows)
    joined = ["number"] >> ops.JoinExternal(PLANES, on="number")
    with pytest.raises(
        WorkflowError, match=r"Two columns are named 'seats'.*ops\.Rename\(postfix.*columns_ext"
    ):
        Workflow(["seats"] + joined).fit(rows)
    renamed = ["seats"] >> ops.Rename(postfix="_2")
    assert Workflow(renamed + joined).fit(rows).transform(rows).collect().row(0) == (9, 101, 150)
