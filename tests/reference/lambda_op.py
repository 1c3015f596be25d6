"""LambdaOp: the user's function once more, in plain Python, value by value."""


def fit(table, columns, settings):
    return columns, settings["plain"], settings.get("dtype")


def transform(state, table):
    columns, plain, dtype = state
    made = {}
    for name in columns:
        values = [
            [plain(v, row) for v in row[name]]
            if isinstance(row[name], list)
            else plain(row[name], row)
            for row in table.each()
        ]
        made[name] = (dtype, values)
    return made
