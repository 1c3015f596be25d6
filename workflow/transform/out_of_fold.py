"""Training data for operators that must not learn a row's value from the row itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeGuard, cast

import polars as pl

from workflow.data.sources import Source
from workflow.engine.engine import collect_all, is_gpu
from workflow.fit.learn_operators import learn_in_pieces
from workflow.graph.fitted_graph import FittedGraph
from workflow.graph.input_schema import held_to
from workflow.graph.node import Node
from workflow.graph.operator_node import OperatorNode
from workflow.graph.resolution import Resolution
from workflow.graph.row_set import Resolved, schema_of
from workflow.graph.selection import regroup
from workflow.operator.feature import Feature, State
from workflow.operator.frame_operator import OutOfFoldOperator
from workflow.progress.stage import showing
from workflow.schema.schema import Schema

from .narrowed_outputs import expect_narrowed
from .outputs import lazy_outputs

ROW, FOLD = "row", "fold"


def transform_out_of_fold(graph: FittedGraph, source: Source, engine: str) -> pl.LazyFrame:
    """The outputs of a fitted workflow for the data that it was fitted to.

    Args:
        graph: a fitted graph.
        source: the data.
        engine: engine of the passes that the folds need, one for each out-of-fold operator.
    """
    graph = copy.copy(graph)  # which another thread may fit meanwhile
    nodes, states = graph.nodes, graph.states
    if not any(_is_out_of_fold(node) for node in nodes):
        return lazy_outputs(graph, source, engine)
    resolution = Resolution(graph.input_schema)
    with source.errors("The data cannot be transformed"):
        columns = source.select(graph.input_schema.names)
        frame = held_to(columns.sound(), graph.input_schema)
        for number, node in enumerate(nodes):
            state = states.get(number, {})
            if _is_out_of_fold(node):
                inputs = resolution.inputs(node)
                resolution.made[node] = _resolve_folds(node, inputs, state, frame, engine)
            else:
                resolution.resolve(node, state)
        output = resolution.made[nodes[-1]]
        expect_narrowed(graph, output, frame)
        return output.rows.select(frame, graph.steps_of(output), engine)


def _is_out_of_fold(node: Node) -> TypeGuard[OperatorNode]:
    return isinstance(node, OperatorNode) and isinstance(node.operator, OutOfFoldOperator)


def _resolve_folds(
    node: OperatorNode, inputs: list[Resolved], state: State, frame: pl.LazyFrame, engine: str
) -> Resolved:
    bound = node.bind(inputs)
    operator, rows, columns = cast("OutOfFoldOperator", bound.operator), bound.rows, bound.columns
    with bound.errors():
        row = rows.numbered(operator, ROW)
        name = FOLD
        while name in columns:
            name += "_"
        fold = Feature.of(name, operator.fold(row.expression))
        program = rows.program([*columns.values(), fold])
        numbered = rows.select(frame, program, engine)
        with showing(f"{node.label}, out of fold"):
            tables = _tables(operator, numbered, schema_of(columns), name, engine)
        outputs = operator.lower_out_of_fold(columns, state, tables, fold)
    return Resolved(outputs, regroup((), outputs), rows)


def _tables(
    operator: OutOfFoldOperator, rows: pl.LazyFrame, columns: Schema, fold: str, engine: str
) -> Mapping[str, pl.DataFrame]:
    """An operator's tables of all folds."""
    if is_gpu(engine):
        queries = operator.fold_partial(rows, columns, fold)
        return dict(zip(queries, collect_all(list(queries.values()), engine), strict=True))
    return learn_in_pieces(
        rows,
        lambda piece: operator.fold_tables_of_rows(piece, columns, fold),
        lambda partials: operator.fold_merge(partials, columns, fold),
    )
