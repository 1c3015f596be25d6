"""JoinExternal: the row of a table that has the key, as a dict finds it."""

import math

import polars as pl
from tables import dtype_name


def fit(table, columns, settings):
    external = settings["df_ext"]
    key = settings.get("on_ext") or settings["on"]
    named = settings.get("columns_ext") or list(external)
    rows = {}
    for number, value in enumerate(external[key]):
        if value is not None:
            rows.setdefault(value, number)
    return columns, settings["on"], rows, {n: external[n] for n in named if n != key}


def transform(state, table):
    columns, on, rows, joined = state
    made = {name: (table.dtypes[name], table[name]) for name in columns}
    for name, values in joined.items():
        series = pl.Series(values)
        absent = [] if isinstance(series.dtype, pl.List) else None
        found = [values[rows[key]] if key in rows else absent for key in table[on]]
        made[name] = (dtype_name(series.dtype), [known(value, absent) for value in found])
    return made


def known(value, absent):
    if isinstance(value, list):
        return [known(element, None) for element in value]
    nan = isinstance(value, float) and math.isnan(value)
    return absent if value is None or nan else value
