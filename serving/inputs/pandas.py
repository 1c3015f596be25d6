"""Columns from pandas. Imported only when the caller has passed pandas data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl

from serving.inputs.arrays import from_list
from serving.inputs.cast import cast, conversion, refused
from serving.inputs.polars import from_polars
from serving.inputs.times import from_datetimes
from workflow.schema.column import Column
from workflow.schema.schema import NAIVE
from workflow.wire.format import WireColumn


def from_pandas(column: WireColumn, series: pd.Series) -> Column:
    """A column from a pandas series. NaN, NA, NaT and None are null; categories become their values.

    Raises:
        DtypeError: a dtype or value that the column cannot hold.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):
        # As in training: Arrow has more types than pandas' dtype API describes.
        return from_polars(column, pl.from_pandas(series))
    if column.time and isinstance(dtype, pd.DatetimeTZDtype):
        utc = series.dt.tz_convert(None).to_numpy()
        return Column(*from_datetimes(column, utc, str(dtype.tz)))
    if column.time and dtype.kind == "M":
        return Column(*from_datetimes(column, series.to_numpy()))
    if dtype.kind in "Mm":
        raise refused(column, dtype, conversion(column, NAIVE))
    missing = series.isna().to_numpy()
    valid = ~missing if missing.any() else None
    plain = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
    if column.layout == "scalar" and isinstance(plain, np.dtype) and plain.kind in "biuf":
        # A null of a nullable dtype has no number; its replacement is ignored.
        replaced = {} if plain is dtype else {"na_value": plain.type()}
        return Column(cast(column, series.array.to_numpy(plain, **replaced), valid), valid)
    objects = series.astype(object).to_numpy(copy=True)
    objects[missing] = None
    return from_list(column, objects.tolist())
