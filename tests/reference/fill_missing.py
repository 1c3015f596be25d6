"""FillMissing: a value in place of what is missing."""

from tables import per_element


def fit(table, columns, settings):
    value = settings.get("fill_val", 0)
    return dict.fromkeys(columns, value), settings.get("add_binary_cols", False)


def transform(state, table):
    values, flags = state
    made = {}
    for name, value in values.items():
        dtype = table.dtypes[name]
        fitting = float(value) if dtype.startswith("float") else value

        def filled(given, fitting=fitting):
            return fitting if given is None else given

        made[name] = (dtype, per_element(table, name, filled))
        if flags:
            made[f"{name}_filled"] = ("bool", per_element(table, name, lambda v: v is None))
    return made
