"""DifferenceLag: the value less that of another row of the same partition."""

import math
from collections import defaultdict


def fit(table, columns, settings):
    keys, shifts = settings["partition_cols"], settings.get("shift", 1)
    keys = [keys] if isinstance(keys, str) else keys
    return columns, keys, [shifts] if isinstance(shifts, int) else shifts


def transform(state, table):
    columns, keys, shifts = state
    partitions = defaultdict(list)
    for row, key in enumerate(zip(*(table[name] for name in keys), strict=True)):
        partitions[key].append(row)
    made = {}
    for name in columns:
        for shift in shifts:
            values = [None] * len(table)
            for rows in partitions.values():
                for place, row in enumerate(rows):
                    if 0 <= place - shift < len(rows):
                        values[row] = less(table[name][row], table[name][rows[place - shift]])
            made[f"{name}_difference_lag_{shift}"] = ("float32", values)
    return made


def less(value, before):
    # Two infinities of one sign have no difference.
    if value is None or before is None or (value == before and math.isinf(value)):
        return None
    return float(value - before)
