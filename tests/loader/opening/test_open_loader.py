"""The memory that a loader takes: its buffer's."""

from __future__ import annotations

import itertools
import tracemalloc

import polars as pl
import pytest

from loader import ArrayLoader
from loader.files.layout import Names
from loader.opening import open_loader
from loader.read.source import open_data


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_padded_lists_count_in_the_buffer(tmp_path, shuffle):
    rows, width = 100_000, 200
    frame = pl.select(tags=pl.concat_list(pl.int_range(rows), pl.int_range(rows)))
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=rows)
    padded = {"sparse_names": ["tags"], "sparse_max": {"tags": width}}
    arguments = {"cat_names": ["tags"], "shuffle": shuffle, "buffer_size": 32e6, **padded}
    with ArrayLoader(tmp_path, 512, seed=0, **arguments) as loader:
        tracemalloc.start()
        try:
            for x in itertools.islice(loader, 60):
                assert x["tags"].shape == (512, width)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 32e6, "all rows padded are 160 MB"


@pytest.mark.parametrize(("limit", "is_lower"), [("4000000", True), ("max", False), (None, False)])
def test_a_containers_limit_is_its_memory(tmp_path, monkeypatch, limit, is_lower):
    frame = pl.select(a=pl.int_range(1_000_000))
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=1_000_000)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(open_loader, "MEMORY_LIMITS", [tmp_path / "memory.max"])
    with ArrayLoader(tmp_path / "a.parquet", 64, cat_names=["a"], seed=0) as loader:
        tracemalloc.start()
        try:
            next(iter(loader))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (most < 400_000) == is_lower


@pytest.mark.parametrize(
    ("column", "nbytes"),
    [
        (pl.Series([0] * 1000, dtype=pl.Int8), 1000),
        (pl.Series([0.5] * 1000), 8 * 1000),
        (pl.Series(["a", "b"] * 500), 16 * 1000),
        (pl.Series([f"a longer text, {number:05}" for number in range(1000)]), (16 + 20) * 1000),
        (pl.Series([[], [1, 2, 3, 4]] * 500, dtype=pl.List(pl.Int16)), (8 + 2 * 2) * 1000),
        (pl.Series([[], ["a", "b"]] * 500), (8 + 16) * 1000),
    ],
    ids=["int8", "float64", "two texts", "texts", "lists", "lists of texts"],
)
def test_a_row_group_counts_as_what_its_rows_take_in_memory(tmp_path, column, nbytes):
    """A string takes 16 bytes beside its text, and a list 8 beside its elements, however few a file has."""
    pl.DataFrame({"a": column}).write_parquet(tmp_path / "a.parquet")
    described = open_data(tmp_path, None).describe(Names(("a",), (), (), ()), skip_bad=False)
    (group,) = described.row_groups
    assert nbytes <= group.nbytes <= 2 * nbytes
