"""LogOp: the logarithm of 1 + x."""

import math

from tables import per_element


def fit(table, columns, settings):
    return columns


def transform(columns, table):
    return {name: ("float32", per_element(table, name, logarithm)) for name in columns}


def logarithm(value):
    if value is None:
        return None
    real = float(value)
    if real <= -1:
        return -math.inf if real == -1 else math.nan
    return math.log1p(real)
