"""NormalizeMinMax: the least value is 0, the greatest 1."""

import math

import normalize


def fit(table, columns, settings):
    ranges = {}
    for name in columns:
        known = [float(v) for v in table.elements(name) if v is not None and math.isfinite(v)]
        least = min(known, default=0.0)
        ranges[name] = (least, (max(known, default=0.0) - least) or 1.0)
    return ranges, settings.get("out_dtype", "float32")


transform = normalize.transform
