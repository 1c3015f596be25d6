"""FillMedian: the median of what is finite."""

import math
import statistics

from tables import per_element

# What the docstring allows beyond whole numbers to 8,192.
RELATIVE = 1 / 8192


def fit(table, columns, settings):
    medians = {}
    for name in columns:
        known = [v for v in table.elements(name) if v is not None and math.isfinite(v)]
        medians[name] = float(statistics.median(known)) if known else 0.0
    return medians, settings.get("add_binary_cols", False)


def transform(state, table):
    medians, flags = state
    made = {}
    for name, median in medians.items():

        def filled(given, median=median):
            return median if given is None else float(given)

        dtype = table.dtypes[name] if table.dtypes[name].startswith("float") else "float64"
        made[name] = (dtype, per_element(table, name, filled))
        if flags:
            made[f"{name}_filled"] = ("bool", per_element(table, name, lambda v: v is None))
    return made
