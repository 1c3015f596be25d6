"""Results of queries over rows on the GPU are complete when they are returned."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow.engine.engine import rows_on_gpu

# So many steps over so many rows are under way for a while after the last of them was asked for.
ROWS = 100_000_000
STEPS = 150
FACTORS = {"a": 1, "b": 2, "c": 3, "d": 4}


@pytest.fixture
def gpu(engine):
    if engine == "cpu":
        pytest.skip("holds rows in a GPU's memory")
    with rows_on_gpu() as gpu:
        yield gpu


@pytest.mark.parametrize("prepared", [False, True])
def test_a_query_over_held_rows_has_ended(prepared, gpu):
    """Rows of another query, together with which they are read, have a stream of their own."""
    small = gpu.send(pl.DataFrame({"small": np.zeros(ROWS, np.int8)}))
    held = gpu.send(pl.DataFrame({"n": np.arange(ROWS, dtype=np.float64)}))
    made = gpu.prepare(added, held.schema).run(held) if prepared else gpu.hold(added(held.lazy()))
    read = gpu.together({"small": small, **made.columns()}).to_host()
    for name, factor in FACTORS.items():
        expected = np.arange(ROWS, dtype=np.float64) * factor + STEPS
        np.testing.assert_array_equal(read[name].to_numpy(), expected)


def added(frame):
    return frame.select(
        sum([1.0] * STEPS, start=pl.col("n") * factor).alias(name)
        for name, factor in FACTORS.items()
    )
