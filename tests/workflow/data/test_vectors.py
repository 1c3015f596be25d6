"""Pre-trained vectors from every kind of file, and what is refused in them."""

import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from safetensors.numpy import save_file

from workflow import WorkflowError
from workflow.data.vectors import read_vectors

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3) / 4
IDS = [9, -2, 7, 2**40]


def in_npy(folder):
    np.save(folder / "v.npy", MATRIX)
    return {"table": folder / "v.npy", "ids": IDS}


def in_two_npy(folder):
    np.save(folder / "i.npy", np.array(IDS))
    return {**in_npy(folder), "ids": str(folder / "i.npy")}


def in_safetensors(folder):
    save_file({"id": np.array(IDS), "item": MATRIX}, folder / "v.safetensors")
    return {"table": folder / "v.safetensors", "ids": "id"}


def in_halves_of_safetensors(folder, dtype="float16"):
    """Beside a tensor of bfloat16, as in the files of language models."""
    half = MATRIX.astype(ml_dtypes.bfloat16)
    item = {"float16": MATRIX.astype(np.float16), "bfloat16": half}[dtype]
    save_file({"id": np.array(IDS), "item": item, "bias": half[0]}, folder / "v.safetensors")
    return {"table": folder / "v.safetensors", "ids": "id"}


def in_bfloat16_of_safetensors(folder):
    return in_halves_of_safetensors(folder, "bfloat16")


def in_parquet(folder):
    table = pl.DataFrame({"id": IDS, "v": MATRIX.tolist(), "note": "x"})
    table.write_parquet(folder / "v.parquet")
    return {"table": str(folder / "v.parquet"), "ids": "id"}


def in_arrays_of_parquet(folder):
    dtype = pl.Array(pl.Float32, 3)
    table = pl.DataFrame({"id": IDS, "v": MATRIX.tolist()}, schema_overrides={"v": dtype})
    table.write_parquet(folder / "v.parquet")
    return {"table": folder, "ids": "id", "vector": "v"}


def in_memory(_):
    return {"table": MATRIX.astype(np.float64), "ids": np.array(IDS)}


@pytest.mark.parametrize(
    "made",
    [
        in_npy,
        in_two_npy,
        in_safetensors,
        in_halves_of_safetensors,
        in_bfloat16_of_safetensors,
        in_parquet,
        in_arrays_of_parquet,
        in_memory,
    ],
)
def test_every_kind_of_file_has_the_same_vectors(made, tmp_path):
    read = read_vectors(**made(tmp_path))
    assert read.ids.to_list() == IDS
    assert read.matrix.dtype == np.float32
    np.testing.assert_array_equal(read.matrix, MATRIX)


@pytest.mark.parametrize("made", [in_npy, in_safetensors])
def test_a_file_of_arrays_is_mapped_and_not_read(made, tmp_path):
    matrix = read_vectors(**made(tmp_path)).matrix
    while not isinstance(matrix, np.memmap):
        assert matrix.base is not None
        matrix = matrix.base
    assert read_vectors(MATRIX).ids is None


def test_a_tensor_is_chosen_by_name(tmp_path):
    save_file({"a": MATRIX, "b": MATRIX * 2}, tmp_path / "v.safetensors")
    read = read_vectors(tmp_path / "v.safetensors", vector="b")
    np.testing.assert_array_equal(read.matrix, MATRIX * 2)
    with pytest.raises(WorkflowError, match=r"as vector. Received: None. The tensors are: a, b"):
        read_vectors(tmp_path / "v.safetensors")


NAN = np.where(np.arange(12).reshape(4, 3) == 7, np.nan, MATRIX)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table": MATRIX[0]}, r"shape \(ids, width\).*Received: shape \(3,\)"),
        ({"table": MATRIX[:, :0]}, r"Received: shape \(4, 0\)"),
        ({"table": MATRIX.astype(int)}, "vectors of floats.*int64"),
        ({"table": MATRIX.tolist()}, r"array of numpy.*Received: list\. .*numpy\.asarray"),
        ({"table": [*MATRIX], "ids": IDS}, r"array of numpy.*Received: list\. .*numpy\.asarray"),
        ({"table": pd.array([0.5, 1.5])}, r"array of numpy.*Received: .*numpy\.asarray"),
        ({"table": NAN}, "finite.*nan.*of id 2"),
        ({"table": NAN, "ids": IDS}, "finite.*nan.*of id 7"),
        ({"table": np.full((4, 3), -np.inf), "ids": IDS}, "finite numbers"),
        ({"table": np.full((4, 3), 1e300), "ids": IDS}, "finite numbers of float32.*1e[+]300"),
        ({"table": MATRIX, "ids": [1, 2, 3]}, "each of 4 vectors.*Received: 3 ids"),
        ({"table": MATRIX, "ids": [1, 2, 1, 4]}, "each id once.*Received: 1 2 times"),
        ({"table": MATRIX, "ids": [1, None, 3, 4]}, "ids without null.*null in row 1"),
        ({"table": MATRIX, "ids": [1.0, 2, 3, 4]}, "integers or strings. Received: Float64"),
        (
            {"table": MATRIX, "ids": np.array([[1], [2], [3], [4]])},
            "integers or strings.*Array.Int64",
        ),
        (
            {"table": MATRIX, "ids": [["a"], ["b"], ["c"], ["d"]]},
            "integers or strings.*List.String",
        ),
        ({"table": MATRIX, "ids": np.ma.masked_equal([1, 2, 3, 4], 2)}, "without null.*in row 1"),
        (
            {"table": np.ma.masked_equal(MATRIX, 1.75), "ids": IDS},
            "finite.*nan at position 1 of id 7",
        ),
        ({"table": MATRIX, "ids": [1, "b", 3, 4]}, "ids of one type"),
        ({"table": MATRIX, "ids": "id"}, "name of a tensor. Received: 'id'. The tensors are: none"),
        ({"table": {"v": [[1.0]]}, "ids": "id"}, "column of ids as ids. Received: 'id'.*are: v"),
        ({"table": {"id": [1], "v": [[1.0]]}}, "column of ids as ids. Received: None"),
        ({"table": {"id": [1], "v": [1.0]}, "ids": "id"}, r"column of lists.*id \(Int64\), v"),
        ({"table": {"id": [1], "v": [[1]]}, "ids": "id"}, r"lists of floats.*List\(Int64\)"),
        (
            {"table": {"id": [1, 2, 3], "v": [[1.0, 2.0], [3.0, 4.0], [5.0]]}, "ids": "id"},
            "one width in column 'v', 2 as most are. Received: 1 numbers for id 3",
        ),
        ({"table": {"id": [1, 2], "v": [[1.0], None]}, "ids": "id"}, "0 numbers for id 2|id 1"),
        ({"table": {"id": [1, 2], "v": [[1.0], [None]]}, "ids": "id"}, "finite.*nan.*of id 2"),
        ({"table": {"id": [], "v": []}, "ids": "id"}, "Received"),
        ({"table": MATRIX, "vector": "v"}, "no vector for one array.*Received: 'v'. Leave it out"),
        ({"table": "v.npy", "vector": "v"}, "no vector for one array"),
        ({"table": MATRIX, "storage_options": {"key": "a"}}, "storage_options with paths.*: key"),
        ({"table": "v.npy", "storage_options": {"key": "a"}}, "storage_options with paths.*: key"),
        ({"table": "v.safetensors", "storage_options": {"key": "a"}}, "storage_options with paths"),
        ({"table": "s3://shop/v.npy"}, "Received: 's3://shop/v.npy'.* copy it here"),
        ({"table": "s3://shop/v.safetensors"}, "Received: 's3://shop/v.safe.* copy it here"),
        ({"table": MATRIX, "ids": "s3://shop/ids.npy"}, "Received: 's3://shop/ids.* copy it here"),
        (
            {"table": pl.DataFrame(schema={"id": pl.Int64, "v": pl.List(pl.Float32)}), "ids": "id"},
            r"Received: shape \(0, 0\)",
        ),
        (
            {"table": MATRIX, "ids": pd.Series(pd.period_range("2024-01", periods=4, freq="M"))},
            r"(?s)ids of one type.*Received: period\[M\]",
        ),
    ],
)
def test_vectors_that_are_wrong(settings, message):
    with pytest.raises(WorkflowError, match=message):
        read_vectors(**settings)


def test_a_number_that_is_not_finite_is_named_in_a_wide_vector():
    wide = np.full((3, 300), 0.123456, np.float32)
    wide[1, 200] = np.nan
    with pytest.raises(WorkflowError, match=r"Received: nan at position 200 of id 8\. Leave"):
        read_vectors(wide, ids=[9, 8, 7])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.npy", None, "array in .*v.npy. Received: no such file"),
        ("v.npy", b"no array", "as numpy.save writes it"),
        ("v.npy", b"", "as numpy.save writes it"),
        ("v.safetensors", None, "tensors of floats in .*v.safetensors: expected a file"),
        ("v.safetensors", b"short", "tensors of floats"),
        ("v.parquet", None, "No parquet file matches"),
        ("v.parquet", b"short", "cannot be read as parquet"),
    ],
)
def test_files_that_are_missing_or_damaged(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WorkflowError, match=message):
        read_vectors(path, ids="id" if name.endswith("parquet") else None)


def test_a_pickle_is_not_loaded(tmp_path):
    np.save(tmp_path / "v.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(WorkflowError, match="Python objects in dtype"):
        read_vectors(tmp_path / "v.npy")


@pytest.mark.parametrize("kind", [np.asarray, pd.Series, pa.array], ids=lambda kind: kind.__name__)
def test_ids_are_those_of_when_they_were_read(kind):
    numbers = np.array([7, 9, 11])
    vectors = read_vectors(np.ones((3, 2), np.float32), ids=kind(numbers))
    numbers[:] = 0
    assert vectors.ids.to_list() == [7, 9, 11]
