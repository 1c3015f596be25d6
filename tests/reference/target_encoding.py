"""TargetEncoding: means of the target by category, drawn towards the mean of all rows."""

import math
from collections import defaultdict

from hash_bucket import hash_of


def fit(table, columns, settings, rows=None):
    targets = settings["target"]
    targets = [targets] if isinstance(targets, str) else targets
    encodings = {}
    for given in columns:
        group = [given] if isinstance(given, str) else list(given)
        for target in targets:
            name = "_".join(["TE", settings.get("name_sep", "_").join(group), target])
            encodings[name] = (group, *means(table, group, target, settings, rows))
    if "out_col" in settings:
        named = settings["out_col"]
        named = [named] if isinstance(named, str) else named
        encodings = dict(zip(named, encodings.values(), strict=True))
    return encodings, settings.get("out_dtype", "float32")


def means(table, group, target, settings, rows):
    """The mean of each category, drawn towards that of all rows, and that mean."""
    seen = defaultdict(list)
    keys = list(zip(*(table[name] for name in group), strict=True))
    for row in range(len(table)) if rows is None else rows:
        seen[keys[row]] += [] if table[target][row] is None else [float(table[target][row])]
    every = [value for values in seen.values() for value in values]
    mean = settings.get("target_mean")
    if mean is None:
        mean = math.fsum(every) / len(every) if every else 0.0
    smooth = settings.get("p_smooth", 20)
    drawn = {
        key: (math.fsum(v) + smooth * mean) / (len(v) + smooth) if v or smooth else mean
        for key, v in seen.items()
    }
    return drawn, mean


def out_of_fold(table, columns, settings):
    """The answers for the rows that it is fitted to: each row's from the other folds."""
    kfold, seed = settings.get("kfold", 3), settings.get("fold_seed", 42)
    folds = [hash_of(row, seed) % kfold for row in range(len(table))]
    made = {}
    for fold in range(kfold):
        others = [row for row in range(len(table)) if kfold == 1 or folds[row] != fold]
        answers = transform(fit(table, columns, settings, others), table)
        for name, (dtype, values) in answers.items():
            column = made.setdefault(name, (dtype, [None] * len(table)))[1]
            for row in range(len(table)):
                column[row] = values[row] if folds[row] == fold else column[row]
    return made


def transform(state, table):
    encodings, dtype = state
    made = {}
    for name, (group, drawn, mean) in encodings.items():
        keys = zip(*(table[column] for column in group), strict=True)
        made[name] = (dtype, [drawn.get(key, mean) for key in keys])
    return made
