"""DataStats: what pandas says of each column; values pass through."""

import math

import pandas as pd
from groupby import mean


def fit(table, columns, settings):
    return {name: described(table.elements(name), table.dtypes[name]) for name in columns}


def described(values, dtype):
    known = [v for v in values if v is not None]
    measured = pd.Series([len(v) if dtype == "string" else v for v in known], dtype="float64")
    return {
        "dtype": dtype,
        "cardinality": None if dtype.startswith("float") else len(set(known)),
        "min": float(measured.min()) if known else None,
        "max": float(measured.max()) if known else None,
        "mean": mean(measured) if known else None,
        "std": spread(measured) if len(known) > 1 else None,
        "per_nan": 100 * (len(values) - len(known)) / len(values) if values else 0.0,
    }


def spread(measured):
    return float(measured.std()) if all(map(math.isfinite, measured)) else math.nan


def transform(state, table):
    return {name: (table.dtypes[name], table[name]) for name in state}
