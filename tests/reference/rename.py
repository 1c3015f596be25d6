"""Rename: the same values under other names."""


def fit(table, columns, settings):
    f = settings.get("f")
    if "name" in settings:
        return {columns[0]: settings["name"]}
    if "postfix" in settings:
        return {name: name + settings["postfix"] for name in columns}
    return {name: f(name) if callable(f) else f.get(name, name) for name in columns}


def transform(names, table):
    return {new: (table.dtypes[old], table[old]) for old, new in names.items()}
