"""Columns of items in the dtypes of a model's inputs."""

import keras
import polars as pl
import pytest

from training import TrainingError
from training.column_facts.input_arrays import input_arrays


@pytest.mark.parametrize(
    ("values", "dtype", "received"),
    [
        (pl.Series("item", [5, 2**32 + 5]), "int32", "5 to 4294967301"),
        (pl.Series("item", [2**63, 7], dtype=pl.UInt64), "int64", "7 to 9223372036854775808"),
        (pl.Series("item", [[3], [2**31]]), "int32", "3 to 2147483648"),
    ],
    ids=["int32", "unsigned", "of a list"],
)
def test_ids_that_a_cast_would_make_others_are_refused(values, dtype, received):
    inputs = [keras.Input((1,), dtype=dtype), keras.Input((1,), dtype="int32")]
    inputs = inputs if values.dtype == pl.List else inputs[:1]
    with pytest.raises(TrainingError, match=f"fit into {dtype}.* 'item' of items.*: {received}"):
        input_arrays(values, inputs)
    good = values.head(1) if values.dtype != pl.UInt64 else values.tail(1)
    assert input_arrays(good, inputs)[0].dtype == dtype


def test_numbers_may_be_rounded_to_those_of_the_input():
    (array,) = input_arrays(pl.Series("price", [2**53 + 1]), [keras.Input((1,))])
    assert array.tolist() == [2.0**53]
