"""Clip: values within bounds, in the column's own dtype."""

import math

from tables import per_element


def fit(table, columns, settings):
    return columns, settings.get("min_value"), settings.get("max_value")


def transform(state, table):
    columns, low, high = state

    def clipped(value):
        if value is None:
            return None
        whole = isinstance(value, int)
        if low is not None and value < low:
            value = math.ceil(low) if whole else float(low)
        if high is not None and value > high:
            value = math.floor(high) if whole else float(high)
        return value

    return {name: (table.dtypes[name], per_element(table, name, clipped)) for name in columns}
