"""ValueCount: the shortest and the longest row; values pass through."""


def fit(table, columns, settings):
    lengths = {name: [len(row) for row in table[name]] for name in columns}
    return {n: {"min": min(of), "max": max(of)} for n, of in lengths.items()}


def transform(counts, table):
    return {name: (table.dtypes[name], table[name]) for name in counts}


def facts(counts):
    return {name: {"value_count": count} for name, count in counts.items()}
