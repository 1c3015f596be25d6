"""FillMedian: the median of what is finite."""

import math
import statistics

import fill_missing

# What the docstring allows beyond whole numbers to 8,192.
RELATIVE = 1 / 8192


def fit(table, columns, settings):
    medians = {}
    for name in columns:
        known = [v for v in table.elements(name) if v is not None and math.isfinite(v)]
        whole = table.dtypes[name].startswith(("int", "uint"))
        median = statistics.median_low if whole else statistics.median
        medians[name] = median(known) if known else 0 if whole else 0.0
    return medians, settings.get("add_binary_cols", False)


transform = fill_missing.transform
