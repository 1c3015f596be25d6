"""Ctrl+C within a call of Polars into Python is an interrupt, not damage of the data."""

import polars as pl
import pytest

from loader import ArrayLoader
from workflow import Workflow, ops


def panic(kind):
    return pl.exceptions.PanicException(
        f"called `Result::unwrap()` on an `Err` value: PyErr {{ type: <class '{kind}'>, value: {kind}() }}"
    )


@pytest.fixture(params=[KeyboardInterrupt, SystemExit])
def interrupted(request, monkeypatch):
    """Let a function of Polars panic as at an interrupt; gives the class of the interrupt."""

    def let(owner, name):
        def end(*_, **__):
            raise panic(request.param.__name__)

        monkeypatch.setattr(owner, name, end)
        return request.param

    return let


@pytest.fixture
def file(tmp_path):
    pl.DataFrame({"user": [7, 7, 9]}).write_parquet(tmp_path / "users.parquet")
    return tmp_path / "users.parquet"


@pytest.fixture
def users():
    return Workflow(["user"] >> ops.Categorify())


@pytest.mark.parametrize("on_bad_files", ["raise", "skip"])
def test_no_footer_is_called_damaged(on_bad_files, file, interrupted):
    kind = interrupted(pl, "read_parquet_schema")
    with pytest.raises(kind):
        ArrayLoader(file, 2, cat_names=["user"], on_bad_files=on_bad_files)


def test_no_file_is_called_damaged(file, users, interrupted):
    users.fit(file)
    kind = interrupted(pl.LazyFrame, "collect")
    with pytest.raises(kind):
        users.transform_to_parquet(file, file.parent / "out")


def test_no_column_is_called_unfit(users, interrupted):
    kind = interrupted(pl.DataFrame, "drop")
    with pytest.raises(kind):
        users.fit({"user": [7, 7, 9]})


def test_no_query_is_called_unfit(file, users, interrupted):
    users.fit(file)
    kind = interrupted(pl.LazyFrame, "collect_schema")
    with pytest.raises(kind):
        users.transform(pl.scan_parquet(file))
