"""The memory that a loader takes: its buffer's."""

from __future__ import annotations

import itertools
import tracemalloc

import polars as pl
import pytest

from loader import ArrayLoader
from loader.opening import open_loader


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
