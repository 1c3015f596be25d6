"""Results of queries over rows on the GPU are complete when they are returned."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow.engine.engine import rows_on_gpu

# So many steps over so many rows are under way for a while after the last of them was asked for.
ROWS = 100_000_000
CHAINS, STEPS = range(1, 7), 150  # a longer chain is too deep for cuDF's translation


@pytest.fixture
def gpu(engine):
    if engine == "cpu":
        pytest.skip("holds rows in a GPU's memory")
    with rows_on_gpu() as gpu:
        yield gpu


@pytest.mark.parametrize("prepared", [False, True])
def test_a_query_over_held_rows_has_ended(prepared, gpu):
    """A column that is read on another stream than the one on which it was made is complete."""
    other = gpu.send(pl.DataFrame({"other": np.zeros(ROWS, np.int8)}))
    held = gpu.send(pl.DataFrame({"n": np.arange(ROWS, dtype=np.float64)}))
    made = gpu.prepare(added, held.schema).run(held) if prepared else gpu.hold(added(held.lazy()))
    read = gpu.together({"other": other, "sum": made}).columns()["sum"].to_host()
    expected = np.arange(ROWS, dtype=np.float64) * sum(CHAINS) + STEPS * len(CHAINS)
    np.testing.assert_array_equal(read["sum"].to_numpy(), expected)


def added(frame):
    chains = (sum([1.0] * STEPS, start=pl.col("n") * factor) for factor in CHAINS)
    return frame.select(sum=sum(chains, start=pl.lit(0.0)))
