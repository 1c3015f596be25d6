"""Integers that the preprocessing computes, and that the network takes in a narrower dtype."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.columns.narrow_inputs import handed_on, is_narrower
from exporter.errors import ExportError
from workflow.expressions.program.program import build
from workflow.expressions.program.ranges import ranges
from workflow.operator.feature import Feature
from workflow.schema.dtypes import DTYPES
from workflow.schema.exact_dtypes import holds, holds_all, stated_range
from workflow.schema.schema import Schema


def expect_ranges(outputs: Iterable[tuple[Feature, tuple[str, str]]], inputs: Schema) -> None:
    """Refuse computed columns whose values, for some requests, do not fit a dtype.

    On every runtime, a cast would silently replace such values by the nearest one that fits. A column
    that is passed through is not checked here if its narrower dtype is an integer type: then the client
    checks its values (narrow_inputs.py). A float input could not be checked so, since its nulls could not
    be told from NaN.

    Args:
        outputs: the workflow's columns for the network, each with its assigned dtype and the dtype
            that the network takes.
        inputs: the columns of the data.

    Raises:
        ExportError: names the column, its possible values and the remedy.
    """
    narrowed = [
        (feature, dtype)
        for feature, (assigned, network_dtype) in outputs
        for dtype in dict.fromkeys((assigned, network_dtype))
        if stated_range(feature.schema) is None
        and (
            _rounds(feature, dtype, assigned)
            or (
                is_narrower(feature.expression.type.dtype, dtype)
                and not handed_on(feature.expression, dtype, inputs)
            )
        )
    ]
    program = build(
        [(f.schema.with_(dtype=f.expression.type.dtype), f.expression) for f, _ in narrowed], inputs
    )
    step_ranges = ranges(program)
    for dtype, (column, step) in zip(
        (dtype for _, dtype in narrowed), program.outputs, strict=True
    ):
        ends = step_ranges[step]
        if ends is not None and not holds(DTYPES[dtype], *ends):
            raise ExportError(
                f"Column {column.name!r} is computed as {column.dtype}, and its steps make values from "
                f"{ends[0]} to {ends[1]} from data that a client may send. Received: {dtype}, which the "
                "network takes or which is assigned to workflow.output_dtypes. Define in the workflow what "
                f"other values become, as the nearest with LambdaOp(lambda c: c.cast({dtype!r})), or give "
                f"the network an input of {column.dtype}."
            )


def _rounds(feature: Feature, dtype: str, assigned: str) -> bool:
    """Whether an assigned float cannot hold all integers; a network's float rounds in training too."""
    have, want = feature.expression.type.dtype, DTYPES[dtype]
    return (
        dtype == assigned
        and want.kind == "float"
        and DTYPES[have].is_integer
        and not holds_all(want, DTYPES[have])
    )
