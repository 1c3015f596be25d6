"""Dropna: the rows in which nothing is missing."""


def fit(table, columns, settings):
    subset = settings.get("subset")
    named = [n for n in columns if not table.is_list(n)] if subset is None else subset
    return columns, [named] if isinstance(named, str) else named


def transform(state, table):
    columns, looked_at = state
    # Neither None nor a list without elements is there; 0, False and "" are.
    kept = [
        row for row in range(len(table)) if all(table[n][row] not in (None, []) for n in looked_at)
    ]
    return {n: (table.dtypes[n], [table[n][row] for row in kept]) for n in columns}
