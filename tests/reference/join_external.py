"""JoinExternal: the row of a table that has the keys, as a dict finds it."""

import math

import polars as pl
from tables import dtype_name


def fit(table, columns, settings):
    external = settings["df_ext"]
    on = listed(settings["on"])
    keys = listed(settings.get("on_ext") or on)
    named = settings.get("columns_ext") or list(external)
    rows = {}
    for number, values in enumerate(zip(*(external[key] for key in keys), strict=True)):
        if None not in values:
            rows.setdefault(values, number)
    return columns, on, rows, {n: external[n] for n in named if n not in keys}


def transform(state, table):
    columns, on, rows, joined = state
    made = {name: (table.dtypes[name], table[name]) for name in columns}
    wanted = list(zip(*(table[name] for name in on), strict=True))
    for name, values in joined.items():
        series = pl.Series(values)
        absent = [] if isinstance(series.dtype, pl.List) else None
        found = [values[rows[key]] if key in rows else absent for key in wanted]
        made[name] = (dtype_name(series.dtype), [known(value, absent) for value in found])
    return made


def listed(names):
    return [names] if isinstance(names, str) else list(names)


def known(value, absent):
    if isinstance(value, list):
        return [known(element, None) for element in value]
    nan = isinstance(value, float) and math.isnan(value)
    return absent if value is None or nan else value
