"""PretrainedVectors: the vector that a dict has for an id, or zeros."""


def fit(table, columns, settings):
    vectors, ids = settings["table"], settings.get("ids")
    if isinstance(vectors, dict):
        (name,) = vectors.keys() - {ids}
        ids, rows = vectors[ids], vectors[name]
    else:
        rows = vectors.tolist()
    return columns, dict(zip(range(len(rows)) if ids is None else ids, rows, strict=True))


def transform(state, table):
    columns, vectors = state
    zeros = [0.0] * len(next(iter(vectors.values())))
    return {
        name: ("float32", [vectors.get(value, zeros) for value in table[name]]) for name in columns
    }


def facts(state):
    columns, vectors = state
    width = len(next(iter(vectors.values())))
    return {name: {"value_count": {"min": width, "max": width}} for name in columns}
