"""Types of the operators, as a checker sees them."""

import pytest
from strict_types import assert_typed

SCRIPT = """
import numpy as np
import polars as pl
from workflow import ops

ops.Bucketize([18, 25])
ops.Bucketize(np.linspace(0, 1, 5))
ops.Bucketize({"age": pl.Series([18, 25]), "price": (0.5, 1.5)})
ops.Bucketize(lambda name: np.arange(len(name)))
ops.Bucketize(["18"])  # type: ignore[list-item]
ops.LambdaOp(np.log1p)
ops.LambdaOp(lambda price: np.where(price > 0, price, 0), tags=["continuous"])
ops.LambdaOp(lambda price, frame: price / frame["income"], dependency=["income"])
ops.LambdaOp(lambda: 1)  # type: ignore[arg-type]
"""


@pytest.mark.long
def test_operators_are_typed_as_they_are_used(tmp_path):
    assert_typed(tmp_path, SCRIPT)
