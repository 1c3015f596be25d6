"""Fitting: the operators learn in phases, each phase one streaming pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from workflow.data.sources import Source
from workflow.engine.engine import is_gpu
from workflow.errors import WorkflowError
from workflow.graph.node import Node
from workflow.graph.operator_node import Bound, OperatorNode
from workflow.graph.resolution import Resolution
from workflow.graph.row_set import schema_of
from workflow.operator.feature import State
from workflow.progress.stage import showing
from workflow.schema.column import Column
from workflow.schema.names import listed
from workflow.schema.schema import Schema

from .learn_operators import (
    ROWS_OF_A_PASS,
    VALUES_OF_A_WIDE_PASS,
    WIDE,
    Learning,
    Tables,
    by_operator,
    learn_part,
    learn_parts,
    learn_query,
    split_by_row,
)
from .learning_input import no_rows

# A GPU holds all columns of a pass in its memory: 5 GB at eight bytes a value.
VALUES_OF_A_PASS_ON_GPU = 640_000_000
ROWS_OF_A_PASS_ON_GPU = 64_000_000

Learn = Callable[[Learning], Tables]


def rows_of_a_pass(engine: str, columns: int) -> int:
    """The number of rows that operators learn from at once."""
    if is_gpu(engine):
        return min(ROWS_OF_A_PASS_ON_GPU, VALUES_OF_A_PASS_ON_GPU // max(1, columns))
    return ROWS_OF_A_PASS if columns <= WIDE else VALUES_OF_A_WIDE_PASS // columns


def fit_graph(nodes: Sequence[Node], inputs: Schema, learn: Learn) -> dict[int, State]:
    """Fit each operator; return the states by the number of the node.

    Args:
        nodes: parents before children.
        inputs: the data's columns that the graph reads.
        learn: makes the operators' tables from the data.

    Raises:
        NeedsIntegersError: columns of the data are floats, but an operator requires integers.
        WorkflowError: an operator cannot take its columns.
    """
    for node in nodes:
        if isinstance(node, OperatorNode):
            node.forget()
    states: dict[int, State] = {}
    resolution = Resolution(inputs)
    while len(resolution.made) < len(nodes):
        learning = _resolve_ready(nodes, states, resolution)
        tables = by_operator(learn(learning)) if learning else {}
        for number, bound in learning.items():
            with bound.errors():
                state = bound.operator.finish(tables[number], schema_of(bound.columns))
            if tables[number]:  # a given state stays as it is
                state = {name: _with_one_zero(column) for name, column in state.items()}
            states[number] = state
    return states


def _with_one_zero(column: Column) -> Column:
    """The same numbers, 0.0 for -0.0: of the two the least is the one that a thread met first."""
    values = column.values
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return replace(column, values=values + 0.0)
    return column


def learner(source: Source, engine: str) -> Learn:
    """Function that makes operators' tables on this machine.

    Args:
        source: the columns of the data that the graph reads.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the engine is unknown.
    """
    rows = rows_of_a_pass(engine, len(source.frame.collect_schema()))
    count = source.row_count()

    def learn(learning: Learning) -> Tables:
        with showing(_names(learning), count):
            files = source.files
            if files is None and (is_gpu(engine) or not source.is_query):
                held = not source.is_query
                return learn_part(learning, source.frame, engine, held=held, row_count=count or 0)
            by_row, at_once = split_by_row(learning)
            tables: Tables = {}
            if by_row:
                tables = (
                    learn_query(by_row, source.frame)
                    if files is None
                    else learn_parts(by_row, files, rows, engine)
                )
            return tables | (learn_part(at_once, source.sound().frame, engine) if at_once else {})

    return learn


def _names(learning: Learning) -> str:
    """The operators that learn in a pass."""
    return ", ".join(dict.fromkeys(bound.operator.label for bound in learning.values()))


class NeedsIntegersError(WorkflowError):
    """Columns of the data are floats, but an operator requires integers.

    Attributes:
        names: the columns.
    """

    def __init__(self, label: str, names: Sequence[str]) -> None:
        super().__init__(f"{label} needs integers. Received: floats in {listed(names)}.")
        self.label, self.names = label, names


class MustLearnError(WorkflowError):
    """An operator has to learn from data, and there is none."""


def learn_nothing(learning: Learning) -> Tables:
    """The tables of operators that learn without data, such as one with a given table.

    Raises:
        MustLearnError: an operator needs data; the message names it.
    """
    for bound in learning.values():
        columns = bound.program.output_schema
        with bound.errors():
            queries = bound.operator.partial(no_rows(columns), columns)
        if queries:
            raise MustLearnError(
                f"{bound.operator.label} must learn from data. Call fit(data) first."
            )
    return {}


def learn_of_no_rows(learning: Learning) -> Tables:
    """States of operators that have learnt from no rows, which determine their outputs' types."""
    tables: dict[tuple[int, str], pl.DataFrame] = {}
    for number, bound in learning.items():
        columns = bound.program.output_schema
        with bound.errors():
            queries = bound.operator.partial(no_rows(columns), columns)
            tables |= {(number, name): query.collect() for name, query in queries.items()}
    return tables


def _resolve_ready(
    nodes: Sequence[Node], states: Mapping[int, State], resolution: Resolution
) -> dict[int, Bound]:
    """Resolve every node that can be resolved; return those that must learn first, bound."""
    learning: dict[int, Bound] = {}
    results = resolution.made
    for number, node in enumerate(nodes):
        if node in results or any(parent not in results for parent in node.parents):
            continue
        if isinstance(node, OperatorNode) and number not in states:
            bound = node.bind(resolution.inputs(node))
            _expect_integers(bound)
            if node.operator.learns:
                learning[number] = bound
                continue
        resolution.resolve(node, states.get(number, {}))
    return learning


def _expect_integers(bound: Bound) -> None:
    """Refuse float columns of the data for an operator that requires integers."""
    features = (bound.columns[name] for name in bound.operator.id_columns(bound.columns))
    floats = [feature for feature in features if feature.schema.info.kind == "float"]
    names = [bound.rows.column_of_data(feature) for feature in floats]
    if of_data := [name for name in names if name is not None]:
        raise NeedsIntegersError(bound.operator.label, of_data)
