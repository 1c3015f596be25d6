"""An iterator over batches that several threads share, as a pool of workers does."""

import sys
import threading
from itertools import repeat

import numpy as np
import polars as pl
import pytest

from loader import ArrayLoader

ROWS = 20_000


@pytest.fixture
def often_switched():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.usefixtures("often_switched")
def test_each_batch_goes_to_one_of_the_threads(shuffle, tmp_path):
    row = pl.int_range(ROWS, eager=True)
    pl.DataFrame({"row": row, "twice": 2 * row}).write_parquet(
        tmp_path / "rows.parquet", row_group_size=1000
    )
    batches = iter(ArrayLoader(tmp_path, 64, cat_names=["row", "twice"], shuffle=shuffle))
    taken = []
    threads = [threading.Thread(target=lambda: taken.extend(batches)) for _ in repeat(None, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    rows = np.concatenate([batch["row"] for batch in taken])
    assert sorted(rows.ravel().tolist()) == row.to_list()
    assert all(np.array_equal(batch["twice"], 2 * batch["row"]) for batch in taken)
