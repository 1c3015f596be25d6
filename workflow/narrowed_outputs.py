"""Outputs whose assigned dtype may be too narrow for the data at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from .dtypes import DTYPES
from .engine import collect_all
from .errors import WorkflowError
from .exact_dtypes import holds, stated_range
from .feature import Feature
from .rows import Resolved

if TYPE_CHECKING:
    from .fitted import FittedGraph


def expect_narrowed(graph: FittedGraph, output: Resolved, frame: pl.LazyFrame) -> None:
    """Refuse data with whole numbers that an assigned dtype does not hold.

    These are outputs of which no operator states a range, as a column of the data that is handed
    on: a cast would make the nearest value of all that are too large. Each takes a look at all
    values.

    Args:
        graph: fitted.
        output: what its last node makes.
        frame: the columns of the data that it reads.

    Raises:
        WorkflowError: names the output, its range and what to do.

    Example:
        >>> from workflow import Workflow
        >>> workflow = Workflow(["userId"]).fit({"userId": [7, 300]})
        >>> workflow.output_dtypes["userId"] = "int8"
        >>> data = pl.LazyFrame({"userId": [7, 300]})
        >>> expect_narrowed(workflow, workflow.made[workflow.nodes[-1]], data)
        Traceback (most recent call last):
            ...
        workflow.errors.WorkflowError: Output 'userId' has values from 7 to 300, which int8 does not hold. ...
    """
    assigned = graph.output_dtypes.assigned
    narrowed = {
        n: f for n, f in output.columns.items() if n in assigned and _may_not_fit(f, assigned[n])
    }
    if not narrowed:
        return
    made = output.rows.select(frame, output.rows.program(narrowed.values()))
    # Grouped values come as lists; their own ends are the ends of all.
    values = {n: pl.col(n).list for n, f in narrowed.items() if f.schema.is_list}
    ends = (
        getattr(getattr(values.get(name, pl.col(name)), end)(), end)().alias(f"{end} {name}")
        for name in narrowed
        for end in ("min", "max")
    )
    [found] = collect_all([made.select(ends)], "cpu")
    row = found.row(0, named=True)
    for name in narrowed:
        low, high = row[f"min {name}"], row[f"max {name}"]
        if low is not None and not holds(DTYPES[assigned[name]], low, high):
            raise WorkflowError(
                f"Output {name!r} has values from {low} to {high}, which {assigned[name]} does not hold. "
                f"Assign a wider dtype to workflow.output_dtypes[{name!r}], or clip the column before."
            )


def _may_not_fit(feature: Feature, dtype: str) -> bool:
    """Whether nothing but the values themselves can tell that they fit."""
    have, want = feature.schema.info, DTYPES[dtype]
    if not (have.is_integer and want.is_integer) or np.can_cast(have.numpy, want.numpy):
        return False
    # What the user says of a column of the data is no proof.
    return stated_range(feature.schema) is None or feature.expression.verb == "source"
