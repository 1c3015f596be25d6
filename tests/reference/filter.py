"""Filter: the rows for which a condition, in plain Python, holds."""


def fit(table, columns, settings):
    return columns, settings["plain"]


def transform(state, table):
    columns, condition = state
    kept = [number for number, row in enumerate(table.each()) if condition(row) is True]
    return {n: (table.dtypes[n], [table[n][row] for row in kept]) for n in columns}
