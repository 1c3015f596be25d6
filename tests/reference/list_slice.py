"""ListSlice: Python's own slices."""


def fit(table, columns, settings):
    start, end = settings["start"], settings.get("end")
    bounds = (0, start) if end is None and start > 0 else (start, end)
    return columns, slice(*bounds), settings.get("pad", False), settings.get("pad_value", 0)


def length_of(part):
    return -part.start if part.stop is None else part.stop - part.start


def transform(state, table):
    columns, part, pad, filling = state
    made = {}
    for name in columns:
        rows = [row[part] for row in table[name]]
        if pad:
            rows = [row + [filling] * (length_of(part) - len(row)) for row in rows]
        made[name] = (table.dtypes[name], rows)
    return made


def facts(state):
    columns, part, pad, _ = state
    if not pad:
        return {}
    count = {"min": length_of(part), "max": length_of(part)}
    return {name: {"value_count": count} for name in columns}
