"""Integers beside a missing one, of which pandas makes floats, are integers at fit as in transform."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from workflow import Schema, Workflow, WorkflowError, ops

NODES = {
    "Categorify": lambda: ["id"] >> ops.Categorify(),
    "combo": lambda: [["id", "other"]] >> ops.Categorify(encode_type="combo"),
    "HashBucket": lambda: ["id"] >> ops.HashBucket(1000),
    "HashedCross": lambda: [["id", "other"]] >> ops.HashedCross(1000),
    "JoinGroupby": lambda: ["id"] >> ops.JoinGroupby("price", stats=["count", "mean"]),
    "TargetEncoding": lambda: [["id", "other"]] >> ops.TargetEncoding("price", kfold=1),
    "ColumnSimilarity": lambda: (
        [["id", "other"]]
        >> ops.ColumnSimilarity({"id": [7, 9, 1, 2], "feature": ["a", "b", "a", "c"]})
    ),
    "after Dropna": lambda: ["id", "other"] >> ops.Dropna("id") >> ops.Categorify(),
    "after Filter": lambda: (
        (["id", "price"] >> ops.Filter(lambda rows: rows["price"] > 1.0) >> ops.Dropna())["id"]
        >> ops.HashBucket(1000)
    ),
    "DatePart": lambda: ["id"] >> ops.DatePart(["day"], unit="D"),
    "after a learner": lambda: (
        (["id", "other"] + (["price"] >> ops.Normalize()) >> ops.Rename(postfix="_"))["id_"]
        >> ops.Categorify()
    ),
}


def rows() -> pd.DataFrame:
    """As pandas reads a column of ids in which one is missing."""
    return pd.DataFrame(
        {"id": [7, None, 9, 7, 11], "other": [1, 1, None, 2, 1], "price": [1.5, 2.0, 3.5, 4.0, 0.5]}
    )


def integers() -> pl.DataFrame:
    return pl.DataFrame(rows().astype({"id": "Int64", "other": "Int64"}))


def in_files(folder):
    folder.mkdir()
    frame = pl.from_pandas(rows(), nan_to_null=False)
    for number, part in enumerate(frame.iter_slices(2)):
        part.write_parquet(folder / f"{number}.parquet")
    return folder


FORMS = {
    "pandas": lambda _: rows(),
    "nan": lambda _: pl.from_pandas(rows(), nan_to_null=False),
    "lazy": lambda _: pl.from_pandas(rows(), nan_to_null=False).lazy(),
    "files": lambda folder: in_files(folder / "data"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_what_is_learnt_is_what_integers_teach(make, form, tmp_path):
    data = FORMS[form](tmp_path)
    workflow, wanted = Workflow(make()).fit(data), Workflow(make()).fit(integers())
    assert workflow.input_schema["id"].dtype == "int64"
    assert workflow.output_schema == wanted.output_schema
    made = workflow.transform(data).collect()
    assert made.equals(wanted.transform(integers()).collect())
    written = workflow.transform_to_parquet(data, tmp_path / "out")
    assert pl.concat(map(pl.read_parquet, written)).equals(made)


@pytest.mark.parametrize("form", FORMS)
def test_each_row_is_encoded_from_the_other_folds_as_with_integers(form, tmp_path):
    def workflow():
        return Workflow([["id", "other"], "id"] >> ops.TargetEncoding("price", kfold=2))

    data, wanted = FORMS[form](tmp_path), workflow().fit_transform(integers()).collect()
    assert workflow().fit_transform(data).collect().equals(wanted)
    written = workflow().fit_transform_to_parquet(data, tmp_path / "out")
    assert pl.concat(map(pl.read_parquet, written)).equals(wanted)


def test_lists_of_them_too():
    data = {"ids": [[1.0, float("nan")], [], [2.0, 1.0]]}
    made = Workflow(["ids"] >> ops.Categorify()).fit_transform(data).collect()
    assert made["ids"].to_list() == [[3, 1], [], [4, 3]]


def test_other_columns_stay_floats():
    workflow = Workflow((["id"] >> ops.Categorify()) + "other").fit(rows())
    assert workflow.input_schema["other"].dtype == "float64"


@pytest.mark.parametrize(
    ("value", "remedy"),
    # Integers made of floats that have lost digits would be other ids.
    [(2.5, "Cast it"), (np.inf, "Cast it"), (2.0**60, "A float has lost .* as integers")],
)
@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_fractions_are_no_ids(make, value, remedy):
    data = rows().assign(id=[7.0, None, value, 7.0, 1.0])
    refused = r"whole numbers up to 9007199254740992\..*'id'.*in row 2\. "
    with pytest.raises(WorkflowError, match=refused + remedy):
        Workflow(make()).fit(data)


@pytest.mark.parametrize(("known", "value"), [(7, 2.0**60), ([7], [1.0, None, -(2.0**60)])])
def test_digits_that_a_float_has_lost_are_named_in_transform_too(known, value):
    workflow = Workflow(["id"] >> ops.Categorify()).fit({"id": [known]})
    with pytest.raises(WorkflowError, match=r"in row 0\. A float has lost .* as integers"):
        workflow.transform({"id": [value]})


def test_a_computed_float_is_no_id():
    node = ["price"] >> ops.LogOp() >> ops.Categorify()
    with pytest.raises(WorkflowError, match="Categorify needs integers, booleans or strings"):
        Workflow(node).fit(rows())


def test_a_float_computed_over_several_rows_is_no_id():
    node = ["price"] >> ops.DifferenceLag("other") >> ops.Categorify()
    with pytest.raises(WorkflowError, match="Categorify needs integers, booleans or strings"):
        Workflow(node).fit(rows())


def test_so_they_are_where_nothing_is_learnt_and_nothing_was_fitted():
    made = Workflow(["id"] >> ops.HashBucket(1000)).transform(rows()).collect()
    assert made.equals(Workflow(["id"] >> ops.HashBucket(1000)).transform(integers()).collect())


@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_so_they_are_in_a_schema_alone(make):
    whole = Workflow(make()).fit(integers()).input_schema
    given = Schema(
        column.with_(dtype="float64") if column.name == "id" else column for column in whole.columns
    )
    known, wanted = (Workflow(make()).fit_schema(schema).output_schema for schema in (given, whole))
    assert known == wanted
