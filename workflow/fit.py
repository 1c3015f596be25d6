"""Fitting: the operators learn in phases, each phase one streaming pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from .engine import is_gpu
from .graph import Node
from .learn import Learning, Tables, computes_lists, learn_part, learn_parts, split_by_row
from .operator import State
from .operator_node import Bound, OperatorNode
from .pieces import pieces
from .resolution import Resolution
from .rows import schema_of
from .schema import Schema

# Polars reads up to 128 row groups ahead of the slowest query, so a pass is over no more than this.
ROWS_OF_A_PASS = 8_000_000

Learn = Callable[[Learning], Tables]


def fit_graph(nodes: Sequence[Node], inputs: Schema, learn: Learn) -> dict[int, State]:
    """What each operator learns, by the number of its node.

    Args:
        nodes: parents before children.
        inputs: the data's columns that the graph reads.
        learn: what makes the operators' tables of the data.

    Raises:
        WorkflowError: an operator cannot take its columns.
    """
    states: dict[int, State] = {}
    resolution = Resolution(inputs)
    while len(resolution.made) < len(nodes):
        learning = _resolve_ready(nodes, states, resolution)
        tables = learn(learning) if learning else {}
        for number, (node, bound) in learning.items():
            own = {name: table for (owner, name), table in tables.items() if owner == number}
            with node.errors(bound.columns):
                states[number] = bound.operator.finish(own, schema_of(bound.columns))
    return states


def learner(data: Any, frame: pl.LazyFrame, engine: str) -> Learn:
    """What makes operators' tables on this machine.

    Args:
        data: what `Workflow.fit` takes.
        frame: the same, lazily, with the columns that the graph reads.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the engine is unknown.
    """
    is_files = isinstance(data, str | Path | list | tuple)
    names = frame.collect_schema().names()

    def learn(learning: Learning) -> Tables:
        if not is_files:
            return learn_part(learning, frame, engine)
        by_row, others = split_by_row(learning)
        if is_gpu(engine):  # a query needs no parts there, unless it is cut up for lists
            by_row = {n: item for n, item in by_row.items() if computes_lists(item[1].program)}
            others = {n: item for n, item in learning.items() if n not in by_row}
        parts = (piece.select(names) for piece in pieces(data, ROWS_OF_A_PASS))
        tables = learn_parts(by_row, parts, engine) if by_row else {}
        return tables | learn_part(others, frame, engine)

    is_gpu(engine)
    return learn


def _resolve_ready(
    nodes: Sequence[Node], states: Mapping[int, State], resolution: Resolution
) -> dict[int, tuple[OperatorNode, Bound]]:
    """Resolve every node that can be; return those that must learn first, bound."""
    learning = {}
    made = resolution.made
    for number, node in enumerate(nodes):
        if node in made or any(parent not in made for parent in node.parents):
            continue
        if isinstance(node, OperatorNode) and node.operator.learns and number not in states:
            learning[number] = node, node.bind(resolution.inputs(node))
        else:
            resolution.resolve(node, states.get(number, {}))
    return learning
