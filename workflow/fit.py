"""Fitting: the operators learn in phases, each phase one streaming pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from .errors import WorkflowError
from .graph import Bound, Node, OperatorNode
from .operator import State
from .resolution import Resolution
from .rows import schema_of
from .schema import Schema


def fit_graph(
    nodes: Sequence[Node], frame: pl.LazyFrame, inputs: Schema, engine: str
) -> dict[int, State]:
    """What each operator learns, by the number of its node.

    Args:
        nodes: parents before children.
        frame: the data's columns that the graph reads.
        inputs: their schema.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the data has no row, or an operator cannot take its columns.
    """
    if frame.select(pl.len()).collect().item() == 0:
        raise WorkflowError("There is no row to fit to.")
    states: dict[int, State] = {}
    resolution = Resolution(inputs)
    while len(resolution.made) < len(nodes):
        learning = _resolve_ready(nodes, states, resolution)
        states |= _learn(learning, frame, engine)
    return states


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


def _learn(
    learning: Mapping[int, tuple[OperatorNode, Bound]], frame: pl.LazyFrame, engine: str
) -> dict[int, State]:
    """One pass over the data for all operators that are ready to learn."""
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    for number, (node, bound) in learning.items():
        program = bound.rows.program(bound.columns.values())
        with node.errors(bound.columns):
            own = bound.rows.select(frame, program)
            partials = bound.operator.partial(own, schema_of(bound.columns))
        queries |= {(number, name): query for name, query in partials.items()}
    tables = dict(zip(queries, collect_all(list(queries.values()), engine), strict=True))
    states = {}
    for number, (node, bound) in learning.items():
        made = {name: table for (owner, name), table in tables.items() if owner == number}
        with node.errors(bound.columns):
            states[number] = bound.operator.finish(made, schema_of(bound.columns))
    return states


def collect_all(queries: list[pl.LazyFrame], engine: str) -> list[pl.DataFrame]:
    """Run queries over one scan of the data.

    Raises:
        WorkflowError: an engine that is not "auto", "cpu" or "gpu".
    """
    if engine not in ("auto", "cpu", "gpu"):
        raise WorkflowError(f'Expected the engine "auto", "cpu" or "gpu". Received: {engine!r}.')
    if not queries:
        return []
    if engine == "gpu":
        # cuDF takes one query at a time; each reads only its own columns.
        return [query.collect(engine=pl.GPUEngine(raise_on_fail=True)) for query in queries]
    return pl.collect_all(queries, engine="streaming")
