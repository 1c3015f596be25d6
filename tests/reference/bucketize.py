"""Bucketize: how many boundaries a value reaches."""

from tables import per_element


def fit(table, columns, settings):
    given = settings["boundaries"]
    if callable(given):
        return {name: list(given(name)) for name in columns}
    return {name: given[name] if isinstance(given, dict) else given for name in columns}


def transform(boundaries, table):
    made = {}
    for name, ascending in boundaries.items():

        def bucket(value, ascending=ascending):
            if value is None:
                return None
            whole = isinstance(value, int) and all(isinstance(b, int) for b in ascending)
            reached = value if whole else float(value)
            return sum(reached >= (b if whole else float(b)) for b in ascending)

        made[name] = ("int32", per_element(table, name, bucket))
    return made


def facts(boundaries):
    return {n: {"cardinality": len(ascending) + 1} for n, ascending in boundaries.items()}
