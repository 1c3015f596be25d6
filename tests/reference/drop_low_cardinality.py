"""DropLowCardinality: ids of Categorify that have enough of them, and columns that have none."""

import categorify


def fit(table, columns, settings):
    """Learn the ids of Categorify for `ids`; the others have no cardinality."""
    ids, others = columns["ids"], columns["others"]
    state = categorify.fit(table, ids, {})
    least = settings.get("min_cardinality", 4)
    sizes = categorify.facts(state)
    return state, [n for n in ids if sizes[n]["cardinality"] - 1 >= least], others


def transform(state, table):
    ids, kept, others = state
    made = categorify.transform(ids, table)
    return {n: made[n] for n in kept} | {n: (table.dtypes[n], table[n]) for n in others}
