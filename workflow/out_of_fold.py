"""Training data for operators that must not learn a row's value from the row itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .data import polars_errors
from .engine import collect_all
from .frame_operator import OutOfFoldOperator
from .graph import Node
from .operator import Feature, State
from .operator_node import OperatorNode
from .resolution import Resolution
from .rows import Resolved, schema_of
from .selection import regroup

if TYPE_CHECKING:
    from .workflow import Workflow

ROW, FOLD = "row", "fold"


def transform_out_of_fold(workflow: Workflow, frame: pl.LazyFrame, engine: str) -> pl.LazyFrame:
    """The outputs of a fitted workflow for the data that it was fitted to.

    Args:
        workflow: fitted.
        frame: the data.
        engine: of the passes over the data that the folds need, one for each such operator.
    """
    nodes, states = workflow.nodes, workflow.states
    if not any(_is_out_of_fold(node) for node in nodes):
        return workflow.transform(frame)
    resolution = Resolution(workflow.input_schema)
    with polars_errors("The data cannot be transformed"):
        for number, node in enumerate(nodes):
            state = states.get(number, {})
            if isinstance(node, OperatorNode) and _is_out_of_fold(node):
                inputs = resolution.inputs(node)
                resolution.made[node] = _resolve_folds(node, inputs, state, frame, engine)
            else:
                resolution.resolve(node, state)
        output = resolution.made[nodes[-1]]
        return output.rows.select(frame, workflow.steps_of(output))


def _is_out_of_fold(node: Node) -> bool:
    return isinstance(node, OperatorNode) and isinstance(node.operator, OutOfFoldOperator)


def _resolve_folds(
    node: OperatorNode, inputs: list[Resolved], state: State, frame: pl.LazyFrame, engine: str
) -> Resolved:
    bound = node.bind(inputs)
    operator, rows, columns = bound.operator, bound.rows, bound.columns
    if not isinstance(operator, OutOfFoldOperator):
        raise TypeError(f"Expected an out-of-fold operator. Received: {node}.")
    with node.errors(columns):
        row = rows.numbered(operator, ROW)
        fold = Feature.of(FOLD, operator.fold(row.expression))
        program = rows.program([*columns.values(), fold])
        queries = operator.fold_partial(rows.select(frame, program), schema_of(columns), FOLD)
        tables = dict(zip(queries, collect_all(list(queries.values()), engine), strict=True))
        made = operator.lower_out_of_fold(columns, state, tables, fold)
    return Resolved(made, regroup((), made), rows)
