"""Texts that are not UTF-8: files of Spark and Impala may have them, and pyarrow reads them unchecked."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow import Workflow, WorkflowError, ops

GOOD = ["plain", "é中", None]
BAD = [b"plain", "café".encode("latin-1"), None]


def texts(values, type_=pa.string):
    """An array of texts of any bytes, as a reader makes it that does not check them."""
    data = pa.array(values, pa.binary())
    return (
        pa.Array.from_buffers(pa.string(), len(data), data.buffers())
        .cast(pa.string())
        .cast(type_())
    )


SHAPES = {
    "string": lambda array: array,
    "large_string": lambda array: pa.Array.from_buffers(
        pa.large_string(),
        len(array),
        pa.array(array.cast(pa.binary()), pa.large_binary()).buffers(),
    ),
    "dictionary": lambda array: array.dictionary_encode(),
    "list": lambda array: pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), array),
    "array": lambda array: pa.FixedSizeListArray.from_arrays(array, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_arrow_texts_that_are_not_utf8_are_refused(shape):
    bad = pa.table({"x": SHAPES[shape](texts(BAD)), "good": pa.array(GOOD)})
    with pytest.raises(WorkflowError, match=r"Column 'x' of the Arrow data .*another encoding"):
        Workflow(["x"] >> ops.Categorify()).fit(bad)
    assert Workflow(["good"] >> ops.Categorify()).fit(bad).transform(bad).collect().height == 3


def test_pandas_texts_that_are_not_utf8_are_refused():
    bad = pd.DataFrame({"x": pd.Series(texts(BAD), dtype=pd.ArrowDtype(pa.string()))})
    with pytest.raises(WorkflowError, match=r"Column 'x' of the pandas frame .*another encoding"):
        Workflow(["x"] >> ops.Categorify()).fit(bad)


@pytest.mark.parametrize("make", [list, lambda texts: pd.Series(texts, dtype=object)])
def test_surrogates_are_refused_with_what_to_do(make):
    bad = {"x": make([b"caf\xe9".decode("utf-8", "surrogateescape"), "plain"])}
    bad = bad if make is list else pd.DataFrame(bad)
    with pytest.raises(WorkflowError, match=r"Column 'x' of the .*another encoding than UTF-8"):
        Workflow(["x"] >> ops.HashBucket(10)).fit(bad)


@pytest.mark.parametrize("shape", ["string", "dictionary", "list"])
def test_a_file_with_texts_that_are_not_utf8_names_the_column(tmp_path, shape):
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3], "x": SHAPES[shape](texts(BAD))}), path)
    with pytest.raises(WorkflowError, match=r"UTF-8 in column 'x' of .*raw\.parquet.*row group 0"):
        Workflow(["n", "x"] >> ops.Categorify()).fit(path)
    assert Workflow(["n"] >> ops.Categorify()).fit(path).transform(path).collect().height == 3


def test_texts_of_every_kind_are_read():
    good = pa.table({name: shape(pa.array(GOOD)) for name, shape in SHAPES.items()})
    made = Workflow([*SHAPES] >> ops.Categorify()).fit(good).transform(good).collect()
    plain = pl.Series([4, 3, 1])
    for name in SHAPES:
        values = made[name] if made[name].dtype == pl.Int64 else made[name].list.first()
        assert sorted(values) == sorted(plain), name
