"""A model's output tensors as frames, in shapes that models of other tools have."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from serving.outputs import to_pandas, to_polars
from workflow.wire.format import WireColumn

NUMBERS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
TEXTS = np.array([[[b"a", b"b"]], [[b"c", b"d"]]], object)


@pytest.mark.parametrize(
    ("dtype", "tensor", "rows"),
    [
        ("float32", NUMBERS, NUMBERS.tolist()),
        ("float32", NUMBERS[:, :1], NUMBERS[:, :1].tolist()),
        ("float32", NUMBERS[:0], []),
        ("float32", NUMBERS[:, 0, :0], [[], []]),
        ("string", TEXTS, [[["a", "b"]], [["c", "d"]]]),
        ("string", TEXTS[:0], []),
    ],
    ids=["matrices", "of one row", "no rows", "no columns", "texts", "no texts"],
)
def test_an_output_of_any_shape_has_a_value_for_each_row(dtype, tensor, rows):
    columns = [WireColumn("y", dtype)]
    assert to_polars(columns, {"y": tensor})["y"].to_list() == rows
    index = pd.RangeIndex(10, 10 + len(rows))
    found = to_pandas(columns, {"y": tensor}, index)
    assert found.index.equals(index)
    assert found["y"].tolist() == rows
    both = to_polars([*columns, WireColumn("row", "int64")], {"y": tensor, "row": index.to_numpy()})
    assert both["row"].to_list() == list(index)
    assert isinstance(both["y"].dtype, pl.Array)
