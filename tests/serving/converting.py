"""One column on its way from the caller's data, and what became of it."""

import numpy as np

from serving.inputs.table import to_columns
from workflow.wire.format import WireColumn


def convert(dtype, data, layout="scalar"):
    return to_columns([WireColumn("c", dtype, layout)], {"c": data})["c"]


def python_values(column):
    """The column as Python values, None where it is null."""
    values = column.array.tolist()
    if column.valid is not None:
        values = [v if ok else None for v, ok in zip(values, column.valid.tolist(), strict=True)]
    if column.lengths is None:
        return values
    ends = np.cumsum(column.lengths).tolist()
    return [values[a:b] for a, b in zip([0, *ends], ends, strict=False)]
