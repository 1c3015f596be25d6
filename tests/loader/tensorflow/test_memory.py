"""The memory that TensorFlow gets. The machine of these tests has no GPU."""

import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderError, configure_tensorflow
from loader.files.parquet_files import ReadableFiles, RowGroup
from loader.options import Budget, rows_in_buffer


def test_a_loader_reads_the_environment_when_it_is_made(monkeypatch, tmp_path):
    pl.DataFrame({"x": [1, 2], "y": [0, 1]}).write_parquet(tmp_path / "a.parquet")
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", "half")
    with pytest.raises(LoaderError, match=r"TF_MEMORY_ALLOCATION, as a number. Received: 'half'"):
        KerasSequenceLoader(str(tmp_path), 2, ["y"], cat_names=["x"], cont_names=[])


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="claims a GPU's memory")
def test_without_a_gpu_nothing_happens(monkeypatch):
    assert configure_tensorflow() is None
    assert configure_tensorflow(0.5, device=0) is None
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", "8192")
    assert configure_tensorflow() is None


@pytest.mark.parametrize("value", ["half", "", "-1", "0", "nan", "inf"])
def test_values_that_make_no_sense(monkeypatch, value):
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", value)
    with pytest.raises(LoaderError, match=r"memory_allocation.*Received"):
        configure_tensorflow()
    with pytest.raises(LoaderError, match=r"memory_allocation.*Received"):
        configure_tensorflow(memory_allocation=value)


@pytest.mark.parametrize(("buffer_size", "rows"), [(6e6, 14_285), (12e6, 28_571), (1, 64)])
def test_rows_in_buffer(buffer_size, rows):
    source = ReadableFiles(
        {}, [RowGroup("a", 0, 0, 500, 50_000), RowGroup("a", 1, 500, 500, 20_000)]
    )
    budget = Budget(10**9, copies=6)
    assert rows_in_buffer(source, buffer_size, 64, budget) == rows
    half = rows_in_buffer(source, 0.5, 64, budget)
    assert half == pytest.approx(10**9 / 2 / 6 / 70, abs=1)
    assert half == pytest.approx(2 * rows_in_buffer(source, 0.25, 64, budget), abs=1)


def test_a_long_list_in_a_short_row_group_does_not_shrink_the_others():
    source = ReadableFiles(
        {}, [RowGroup("a", 0, 0, 1_000_000, 10_000_000), RowGroup("a", 1, 1_000_000, 1, 800_000)]
    )
    # Any 320,001 rows take at most a quarter of the 16 MB.
    assert rows_in_buffer(source, 16e6, 64, Budget(10**9, 4)) == 320_001
    assert rows_in_buffer(source, 16e6, 64, Budget(10**9, 4), padding=30) == 1 + 3_199_970 // 40


def test_what_libraries_take_counts_as_a_part_of_the_buffer():
    source = ReadableFiles({}, [RowGroup("a", 0, 0, 500, 50_000)])
    assert rows_in_buffer(source, 10e6, 64, Budget(10**9, 2, fixed=2_000_000)) == 40_000
    assert rows_in_buffer(source, 10e6, 64, Budget(10**9, 2, fixed=9_000_000)) == 25_000
