"""Normalize: less the mean, over the standard deviation of a sample."""

import math

from groupby import mean, spread
from tables import per_element


def fit(table, columns, settings):
    moments = {}
    for name in columns:
        known = [float(v) for v in table.elements(name) if v is not None and math.isfinite(v)]
        deviation = math.sqrt(spread(known)) if len(known) > 1 else 0.0
        moments[name] = (mean(known) if known else 0.0, deviation or 1.0)
    return moments, settings.get("out_dtype", "float32")


def transform(state, table):
    moments, dtype = state
    made = {}
    for name, (least, width) in moments.items():

        def scaled(value, least=least, width=width):
            return None if value is None else (float(value) - least) / width

        made[name] = (dtype, per_element(table, name, scaled))
    return made
