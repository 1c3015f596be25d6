"""Outputs whose assigned dtype may be too narrow for the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workflow.engine.engine import collect_all
from workflow.errors import WorkflowError
from workflow.expressions.language.limits import Range
from workflow.expressions.program.ranges import ranges
from workflow.graph.row_set import Resolved
from workflow.operator.feature import Feature
from workflow.schema.dtypes import DTYPES, DType
from workflow.schema.exact_dtypes import holds

if TYPE_CHECKING:
    from workflow.graph.fitted_graph import FittedGraph


def expect_narrowed(graph: FittedGraph, output: Resolved, frame: pl.LazyFrame) -> None:
    """Refuse data with numbers that an assigned dtype cannot hold.

    Checks outputs whose steps can make values outside of the dtype, whatever their schema says of
    them: a cast would turn too large an integer into another one, and a float into infinity. Each
    check reads all values.

    Args:
        graph: a fitted graph.
        output: the columns of its last node.
        frame: the columns of the data that it reads.

    Raises:
        WorkflowError: names the output, its range and the remedy.

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
    program = output.rows.program(f for n, f in output.columns.items() if n in assigned)
    possible = ranges(program)
    narrowed = {
        column.name: output.columns[column.name]
        for column, step in program.outputs
        if _may_not_fit(column.info, DTYPES[assigned[column.name]], possible[step])
    }
    if not narrowed:
        return
    values = output.rows.select(frame, output.rows.program(narrowed.values()))
    ends = (
        getattr(_values(feature), end)().alias(f"{end} {name}")
        for name, feature in narrowed.items()
        for end in ("min", "max")
    )
    [extremes] = collect_all([values.select(ends)], "cpu")
    row = extremes.row(0, named=True)
    for name, feature in narrowed.items():
        low, high = row[f"min {name}"], row[f"max {name}"]
        if low is not None and not _fits(feature, DTYPES[assigned[name]], low, high):
            raise WorkflowError(
                f"Output {name!r} has values from {low} to {high}, which {assigned[name]} does not hold. "
                f"Assign a wider dtype to workflow.output_dtypes[{name!r}], or clip the column before."
            )


def _values(feature: Feature) -> pl.Expr:
    """The values of a column, or of all of its lists; for floats the finite ones only."""
    values = pl.col(feature.schema.name)
    if feature.schema.is_list:
        values = values.explode(empty_as_null=False)
    return values if feature.schema.info.is_integer else values.filter(values.is_finite())


def _fits(feature: Feature, dtype: DType, low: Any, high: Any) -> bool:
    if feature.schema.info.is_integer:
        return holds(dtype, low, high)
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.array([low, high]).astype(dtype.numpy)).all())


def _may_not_fit(have: DType, want: DType, made: Range | None) -> bool:
    """Whether only the values themselves can show that they fit; `made` limits those of the steps."""
    if have.kind == "float":
        return want.numpy.itemsize < have.numpy.itemsize
    return made is not None and not holds(want, *made)
