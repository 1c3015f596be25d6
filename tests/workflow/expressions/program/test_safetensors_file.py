"""Our safetensors reader and writer, against the safetensors package in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from workflow.expressions.program.safetensors_file import (
    FormatError,
    column_to_arrays,
    columns_from_arrays,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)
from workflow.schema.column import Column, Strings

DTYPES = ["bool", "float32", "float64"] + [f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)]


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    # Of odd byte sizes, so that what follows is not aligned by luck.
    made = {dtype: np.arange(5).astype(dtype) for dtype in DTYPES}
    return made | {
        "empty": np.zeros(0, np.int64),
        "table": np.ones((2, 3), np.float32),
        "é.a": np.ones(1),
    }


def assert_equal(received, expected):
    assert received.keys() == expected.keys()
    for name, array in expected.items():
        assert received[name].dtype == array.dtype
        np.testing.assert_array_equal(received[name], array)


def test_the_package_reads_what_we_write(arrays, tmp_path):
    write_arrays(tmp_path / "a.safetensors", arrays)
    assert_equal(load_file(tmp_path / "a.safetensors"), arrays)


def test_we_read_what_the_package_writes(arrays, tmp_path):
    save_file(arrays, tmp_path / "a.safetensors", metadata={"who": "safetensors"})
    assert_equal(read_arrays(tmp_path / "a.safetensors"), arrays)


def test_we_read_what_we_write_aligned_and_unwritable(arrays, tmp_path):
    write_arrays(tmp_path / "a.safetensors", arrays)
    back = read_arrays(tmp_path / "a.safetensors")
    assert_equal(back, arrays)
    assert all(array.flags.aligned and not array.flags.writeable for array in back.values())


def test_nothing_is_a_file_too(tmp_path):
    write_arrays(tmp_path / "a.safetensors", {})
    assert read_arrays(tmp_path / "a.safetensors") == load_file(tmp_path / "a.safetensors") == {}


def test_columns_come_back(tmp_path):
    columns = {
        "numbers": Column(np.arange(3)),
        "a.dotted.name": Column(np.zeros(2), np.array([True, False])),
        "lists": Column(
            Strings.of(["é", "", "日本"]), np.array([True, False, True]), np.array([0, 3])
        ),
        "nothing": Column(Strings.of([])),
    }
    arrays = {}
    for name, column in columns.items():
        arrays |= column_to_arrays(name, column)
    write_arrays(tmp_path / "a.safetensors", arrays)
    back = columns_from_arrays(read_arrays(tmp_path / "a.safetensors"), "a file")
    assert back.keys() == columns.keys()
    for name, column in columns.items():
        assert back[name].array.tolist() == column.array.tolist()
        for part in ("valid", "lengths"):
            expected, received = getattr(column, part), getattr(back[name], part)
            assert (
                (received is None) if expected is None else received.tolist() == expected.tolist()
            )


def test_json_that_could_not_be_read_is_not_written(tmp_path):
    with pytest.raises(FormatError, match="at most 4000000 bytes"):
        write_json(tmp_path / "a.json", ["x" * 4_000_000])
    assert not (tmp_path / "a.json").exists()
    write_json(tmp_path / "a.json", {"x": [1, "é", None]})
    assert read_json(tmp_path / "a.json") == {"x": [1, "é", None]}
