"""Fit, transform, dtypes of the outputs, and the states a workflow can be in."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column


def test_transform_keeps_rows_in_order_and_leaves_unread_columns_out(fitted, ratings):
    made = fitted.transform(ratings.with_columns(extra=1)).collect()
    assert made.columns == ["userId", "genres", "rating"]
    assert made["userId"].to_list() == [3, 3, 4, 1, 3, 4]
    assert made["genres"].to_list() == [[3, 4], [], [], [3], [5, 1], [4, 3]]
    assert made["rating"].to_list() == [True, True, False, False, True, False]


def test_before_fit_everything_says_so(tmp_path):
    workflow = Workflow(["userId"] >> ops.Categorify())
    for use in (
        lambda: workflow.transform({"userId": [1]}),
        lambda: workflow.output_schema,
        lambda: workflow.save(tmp_path / "saved"),
        lambda: workflow.output_dtypes.update(userId="int32"),
    ):
        with pytest.raises(WorkflowError, match=r"not fitted. Call fit"):
            use()
    assert not (tmp_path / "saved").exists()
    assert "not fitted" in repr(workflow)


def test_fitting_again_forgets_what_was_learnt(fitted, ratings):
    other = ratings.with_columns(userId=pl.Series([1, 2, 2, 2, 1, 3]))
    fitted.fit(other)
    assert fitted.transform(other).collect()["userId"].to_list() == [4, 3, 3, 3, 4, 5]
    assert fitted.transform(ratings).collect()["userId"].to_list() == [2, 2, 2, 1, 2, 2]


def test_a_failed_fit_leaves_the_workflow_as_it_was(fitted, ratings):
    before = fitted.transform(ratings).collect()
    with pytest.raises(WorkflowError):
        fitted.fit(ratings.with_columns(userId=pl.lit(0.5)))
    assert fitted.input_schema["userId"].dtype == "int64"
    assert fitted.transform(ratings).collect().equals(before)


def test_there_must_be_rows_to_fit_to(ratings):
    with pytest.raises(WorkflowError, match=r"rows to fit to\. Received: none\. Check"):
        Workflow(["userId"] >> ops.Categorify()).fit(ratings.clear())


def test_missing_column_is_named(fitted, ratings, tmp_path):
    with pytest.raises(WorkflowError, match=r"No column 'genres' in the data. It has: userId"):
        fitted.transform(ratings.drop("genres"))
    ratings.drop("genres").write_parquet(tmp_path / "a.parquet")
    with pytest.raises(WorkflowError, match=r"No column 'genres' in the data"):
        fitted.transform(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (pl.col("userId").cast(pl.String), r'String\. Cast it: \.cast\(pl\.Int64\).*"Int64"'),
        (pl.concat_list("userId").alias("userId"), r"List.* Send a single value for each row"),
        (pl.col("genres").list.first(), r"String\. Send a list for each row"),
        (pl.col("genres").list.len(), r"UInt32\. Send a list for each row"),
        (pl.col("rating").cast(pl.String), r'String\. Cast it: \.cast\(pl\.Float64\).*"Float64"'),
        (
            pl.col("genres").list.eval(pl.element().str.len_bytes()),
            r"List.* Cast it: \.cast\(pl\.List\(pl\.String\)\) in Polars\.$",
        ),
    ],
    ids=str,
)
def test_column_of_another_kind_than_in_fit_is_refused(fitted, ratings, change, advice):
    message = rf"Expected column .* as in fit\. Received: {advice}"
    with pytest.raises(WorkflowError, match=message):
        fitted.transform(ratings.with_columns(change))


def test_column_of_another_width_than_in_fit_is_taken(fitted, ratings):
    narrow = ratings.with_columns(
        pl.col("userId").cast(pl.UInt8), pl.col("rating").cast(pl.Float32)
    )
    assert fitted.transform(narrow).collect().equals(fitted.transform(ratings).collect())


def test_column_of_nothing_but_nulls_is_taken_whatever_its_type(fitted):
    nothing = {"userId": [None], "genres": [None], "rating": [None]}
    assert fitted.transform(nothing).collect().row(0) == (1, [], False)


def test_a_category_is_its_text():
    data = {"city": pl.Series(["b", "a", "b"], dtype=pl.Categorical)}
    workflow = Workflow(["city"] >> ops.Categorify()).fit(data)
    assert workflow.transform({"city": ["a", "b"]}).collect()["city"].to_list() == [4, 3]


def test_engine_is_checked(ratings):
    with pytest.raises(WorkflowError, match="Received: 'tpu'"):
        Workflow(["userId"] >> ops.Categorify()).fit(ratings, engine="tpu")


def test_output_dtype_is_honoured_everywhere(fitted, ratings, tmp_path):
    fitted.output_dtypes["userId"] = np.int32
    fitted.output_dtypes["genres"] = "int16"
    fitted.output_dtypes["rating"] = "float32"
    made = fitted.transform(ratings).collect()
    assert made.schema == {"userId": pl.Int32, "genres": pl.List(pl.Int16), "rating": pl.Float32}
    [file] = fitted.transform_to_parquet(ratings, tmp_path / "parquet")
    assert pl.read_parquet(file).equals(made)
    columns = {name: to_column(ratings[name]) for name in fitted.program.inputs.names}
    served = NumpyInterpreter(fitted.program)(columns)
    assert {n: c.array.dtype.name for n, c in served.items()} == {
        "userId": "int32",
        "genres": "int16",
        "rating": "float32",
    }
    assert fitted.output_schema["userId"].dtype == "int32"
    assert dict(fitted.output_dtypes)["genres"] == "int16"


def test_output_dtype_survives_fit_save_and_load(fitted, ratings, tmp_path):
    fitted.output_dtypes["userId"] = "int32"
    fitted.fit(ratings).save(tmp_path / "saved")
    assert Workflow.load(tmp_path / "saved").output_schema["userId"].dtype == "int32"


def test_output_dtype_can_be_taken_back(fitted):
    fitted.output_dtypes["userId"] = "int32"
    del fitted.output_dtypes["userId"]
    assert fitted.output_schema["userId"].dtype == "int64"


def test_output_dtype_that_cannot_be_is_refused(ratings):
    workflow = Workflow((["userId"] >> ops.Categorify()) + "genres").fit(ratings)
    with pytest.raises(WorkflowError, match=r"are: userId, genres\. Did you mean 'userId'"):
        workflow.output_dtypes["user"] = "int32"
    with pytest.raises(WorkflowError, match="'genres' is string and cannot become int32"):
        workflow.output_dtypes["genres"] = "int32"
    with pytest.raises(WorkflowError, match="Received: 'int33'"):
        workflow.output_dtypes["userId"] = "int33"
    assert workflow.output_schema["userId"].dtype == "int64"


def test_output_dtype_too_narrow_for_the_ids_is_refused():
    workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": list(range(300))})
    with pytest.raises(WorkflowError, match="values from 0 to 302, which int8 does not hold"):
        workflow.output_dtypes["userId"] = "int8"
    workflow.output_dtypes["userId"] = "uint16"


def test_fit_does_not_change_what_it_is_given(ratings):
    before = ratings.clone()
    Workflow(["userId", "genres"] >> ops.Categorify()).fit_transform(ratings).collect()
    assert ratings.equals(before)


def test_a_thousand_output_dtypes_do_not_build_a_thousand_programs(monkeypatch):
    from workflow.graph import row_set as module

    built = []
    monkeypatch.setattr(module, "build", lambda *a: built.append(1) or original(*a))
    original = __import__("workflow.expressions.program.program", fromlist=["build"]).build
    names = [f"c{n}" for n in range(50)]
    workflow = Workflow(names >> ops.FillMissing()).fit({name: [1] for name in names})
    for name in names:
        workflow.output_dtypes[name] = "int32"
    assert workflow.output_schema["c49"].dtype == "int32"
    assert len(built) == 1
