"""ColumnSimilarity: the inner product of what two tables say of two ids."""

import math
from collections import defaultdict


def weights(table, metric):
    """The weight of each feature of each id."""
    names = list(table)
    found = defaultdict(lambda: defaultdict(float))
    for row in zip(*(table[name] for name in names), strict=True):
        listed = isinstance(row[1], list)
        features = row[1] if listed else [row[1]]
        given = row[2] if len(row) == 3 else [1.0] * len(features)
        for feature, weight in zip(
            features, given if isinstance(given, list) else [given], strict=True
        ):
            if row[0] is not None and feature is not None:
                found[row[0]][feature] += weight
    ids = {i: {f: w for f, w in of.items() if w != 0} for i, of in found.items()}
    ids = {i: of for i, of in ids.items() if of}
    if metric == "tfidf":
        having = defaultdict(int)
        for of in ids.values():
            for feature in of:
                having[feature] += 1
        ids = {
            i: {f: w * math.log(len(ids) / having[f]) for f, w in of.items()}
            for i, of in ids.items()
        }
    if metric != "inner":
        lengths = {i: math.sqrt(math.fsum(w * w for w in of.values())) for i, of in ids.items()}
        ids = {i: {f: w / (lengths[i] or 1) for f, w in of.items()} for i, of in ids.items()}
    return ids


def fit(table, columns, settings):
    metric = settings.get("metric", "tfidf")
    left = weights(settings["left_features"], metric)
    right = settings.get("right_features")
    return columns, left, left if right is None else weights(right, metric)


def transform(state, table):
    pairs, left, right = state
    made = {}
    for first, second in pairs:
        values = []
        for a, b in zip(table[first], table[second], strict=True):
            known = a in left and b in right
            products = (w * right[b].get(f, 0.0) for f, w in left[a].items()) if known else ()
            values.append(math.fsum(products) if known else None)
        made[f"{first}_{second}_sim"] = ("float32", values)
    return made
