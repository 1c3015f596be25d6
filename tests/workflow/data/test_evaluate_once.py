"""The rows of a query, kept in a temporary file."""

import tempfile

import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops


def test_a_full_disk_of_temporary_files_is_named(full_disk):
    """It was said of the data: "File out of specification"."""
    rows = pl.LazyFrame({"user": range(5_000)}).unique()
    workflow = Workflow(["user"] >> ops.Categorify())
    with full_disk(100), pytest.raises(WorkflowError) as raised:
        workflow.fit(rows)
    assert str(raised.value) == (
        f"Expected to be able to write a temporary file to {tempfile.gettempdir()}. Received: File too "
        "large. Check the free space and the permissions of the disk. Or set TMPDIR to another folder."
    )


def test_an_error_of_the_query_is_that_of_the_data():
    rows = pl.LazyFrame({"user": ["a"]}).unique().select(pl.col("user").cast(pl.Int64))
    with pytest.raises(WorkflowError, match="cannot be fitted to: conversion") as raised:
        Workflow(["user"] >> ops.Categorify()).fit(rows)
    assert "TMPDIR" not in str(raised.value)


def test_rows_keep_the_order_of_the_query_whatever_its_columns_are():
    """Polars' optimizer does not see that the order of rows shows in a choice between constants."""
    rows = pl.DataFrame({"n": [number % 7 for number in range(60_000)]})
    parts = pl.concat([rows[start : start + 600].lazy() for start in range(0, 60_000, 600)])
    query = parts.select(late=pl.when(pl.col("n") > 3).then(1).otherwise(0))
    made = Workflow(["late"]).fit_transform(query).collect()["late"]
    assert made.to_list() == [int(n > 3) for n in rows["n"]]
