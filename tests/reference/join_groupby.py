"""JoinGroupby: statistics of the rows that were in the same group when it was fitted."""

import math
from collections import defaultdict

from groupby import mean, spread

ABSOLUTE = 1e-3  # of sums of values that are far apart


def fit(table, columns, settings):
    described = settings.get("cont_cols") or []
    described = [described] if isinstance(described, str) else described
    stats = settings.get("stats", ["count"])
    state = []
    for given in columns:
        group = [given] if isinstance(given, str) else list(given)
        rows = defaultdict(list)
        for number, key in enumerate(zip(*(table[n] for n in group), strict=True)):
            rows[key].append(number)
        chosen = [stats] if isinstance(stats, str) else stats
        wanted = [(None, "count")] if "count" in chosen else []
        wanted += [(name, stat) for name in described for stat in chosen if stat != "count"]
        tables = {
            (name, stat): {
                key: statistic([table[name][n] for n in numbers] if name else numbers, stat)
                for key, numbers in rows.items()
            }
            for name, stat in wanted
        }
        state.append((group, tables))
    kinds = {name: table.dtypes[name] for name in described}
    return state, kinds, settings.get("name_sep", "_")


def statistic(values, stat):
    if stat == "count":
        return len(values)
    known = [v for v in values if v is not None and math.isfinite(v)]
    reals = [float(v) for v in known]
    if stat == "sum":
        return math.fsum(reals)
    if len(known) < (2 if stat in ("std", "var") else 1):
        return None
    if stat in ("min", "max"):
        return min(known) if stat == "min" else max(known)
    if stat == "mean":
        return mean(reals)
    return spread(reals) if stat == "var" else math.sqrt(spread(reals))


def transform(state, table):
    groups, kinds, separator = state
    made = {}
    for group, tables in groups:
        keys = list(zip(*(table[n] for n in group), strict=True))
        for (name, stat), found in tables.items():
            parts = [*group, stat] if name is None else [*group, name, stat]
            dtype = "int32" if name is None else "float32"
            dtype = kinds[name] if stat in ("min", "max") else dtype
            absent = 0 if name is None else None
            made[separator.join(parts)] = (dtype, [found.get(key, absent) for key in keys])
    return made
