"""ReduceDtypeSize: the narrowest dtype of whole numbers, which later values saturate."""

import numpy as np
from tables import per_element


def fit(table, columns, settings):
    real = settings.get("float_dtype", "float32")
    return {name: narrowest(table, name, real) for name in columns}


def narrowest(table, name, real):
    dtype = table.dtypes[name]
    if dtype == "float64":
        return real
    known = [v for v in table.elements(name) if v is not None]
    if not dtype.startswith(("int", "uint")) or not known:
        return dtype
    for small in ("int8", "int16", "int32"):
        limits = np.iinfo(small)
        if np.dtype(small).itemsize >= np.dtype(dtype).itemsize:
            break
        if limits.min <= min(known) and max(known) <= limits.max:
            return small
    return dtype


def transform(dtypes, table):
    made = {}
    for name, dtype in dtypes.items():

        def cast(value, dtype=dtype):
            if value is None or not dtype.startswith(("int", "uint")):
                return value
            limits = np.iinfo(dtype)
            return min(max(value, int(limits.min)), int(limits.max))

        made[name] = (dtype, per_element(table, name, cast))
    return made
