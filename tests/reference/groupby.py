"""Groupby: one row for each key, by pandas where pandas says the same, else by hand."""

import math
import statistics
from collections import defaultdict

ABSOLUTE = 1e-3  # of sums of values that are far apart


def fit(table, columns, settings):
    return columns, settings


def listed(given):
    return [given] if isinstance(given, str) else list(given or [])


def nulls_last(key):
    return [(v is None, v) if v is not None else (True,) for v in key]


def nulls_first(key):
    return [(v is not None, v) if v is not None else (False,) for v in key]


def transform(state, table):
    columns, settings = state
    keys, by = listed(settings["groupby_cols"]), listed(settings.get("sort_cols"))
    aggs, separator = settings.get("aggs", "list"), settings.get("name_sep", "_")
    named = aggs if isinstance(aggs, dict) else {n: aggs for n in columns if n not in keys}
    order = list(range(len(table)))
    if by:
        order.sort(
            key=lambda row: nulls_first([table[name][row] for name in by]),
            reverse=not settings.get("ascending", True),
        )
        if not settings.get("ascending", True):
            order = stable_reverse(
                order, [[table[n][row] for n in by] for row in range(len(table))]
            )
    # Of descending rows the first in ascending order is the last.
    turned = bool(by) and not settings.get("ascending", True)
    ends = {"first": "last", "last": "first"} if turned else {}
    groups = defaultdict(list)
    for row in order:
        groups[tuple(table[name][row] for name in keys)].append(row)
    ordered = sorted(groups, key=nulls_last)
    made = {n: (table.dtypes[n], [key[k] for key in ordered]) for k, n in enumerate(keys)}
    for name, aggregates in named.items():
        for aggregate in listed(aggregates):
            values = [
                aggregated(
                    [table[name][row] for row in groups[key]],
                    ends.get(aggregate, aggregate),
                    table,
                    name,
                )
                for key in ordered
            ]
            dtype = dtype_of(aggregate, table.dtypes[name])
            made[f"{name}{separator}{aggregate}"] = (dtype, values)
    return made


def stable_reverse(order, keys):
    """Rows that are alike keep their order when the others are turned round."""
    places = {}
    for row in order:
        places.setdefault(tuple(keys[row]), []).append(row)
    return [row for rows in places.values() for row in sorted(rows)]


def dtype_of(aggregate, dtype):
    if aggregate in ("count", "nunique"):
        return "int32"
    if aggregate in ("mean", "std", "var", "median"):
        return "float32"
    if aggregate == "sum":
        if dtype.startswith("float"):
            return "float64"
        return "uint64" if dtype == "uint64" else "int64"
    return dtype


def aggregated(values, aggregate, table, name):
    known = values if table.is_list(name) else [v for v in values if v is not None]
    plain = {
        "list": lambda: values,
        "first": lambda: values[0],
        "last": lambda: values[-1],
        "count": lambda: len(known),
        "nunique": lambda: len(set(known)),
        "sum": lambda: known_or_none(total(known, table.dtypes[name])),
        "min": lambda: min(known, default=None),
        "max": lambda: max(known, default=None),
    }
    if aggregate in plain:
        return plain[aggregate]()
    return known_or_none(of_reals([float(v) for v in known], aggregate)) if known else None


def known_or_none(value):
    """A number, or null if it is NaN, as the sum of both infinities is."""
    return None if value is None or math.isnan(value) else value


def of_reals(reals, aggregate):
    if aggregate == "median":
        middle = {statistics.median_low(reals), statistics.median_high(reals)}
        return math.nan if len(middle) > 1 and -math.inf in middle else statistics.median(reals)
    if aggregate == "mean":
        return mean(reals)
    if len(reals) < 2:
        return None
    variance = spread(reals)
    return variance if aggregate == "var" else math.sqrt(variance)


def total(known, dtype):
    if dtype.startswith("float"):
        return added(known)
    wrapped = sum(known) % 2**64
    return wrapped if dtype == "uint64" or wrapped < 2**63 else wrapped - 2**64


def added(reals):
    if all(math.isfinite(v) for v in reals):
        return math.fsum(reals)
    return sum(v for v in reals if not math.isfinite(v))


def mean(reals):
    return added(reals) / len(reals)


def spread(reals):
    if not all(math.isfinite(v) for v in reals):
        return math.nan
    centre = mean(reals)
    return math.fsum((v - centre) ** 2 for v in reals) / (len(reals) - 1)
