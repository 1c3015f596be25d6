"""Fitting: the operators learn in phases, each phase one streaming pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from .errors import WorkflowError
from .expressions.polars import apply
from .expressions.program import build
from .graph import Node, OperatorNode
from .operator import Features, State
from .schema import Schema, SchemaError


def fit_graph(
    nodes: Sequence[Node], frame: pl.LazyFrame, sources: Features, engine: str
) -> dict[int, State]:
    """What each operator learns, by the number of its node.

    Args:
        nodes: parents before children.
        frame: the data's columns that the graph reads.
        sources: those columns as features.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the data has no row, or an operator cannot take its columns.
    """
    if frame.select(pl.len()).collect().item() == 0:
        raise WorkflowError("There is no row to fit to.")
    states: dict[int, State] = {}
    resolved: dict[Node, Features] = {}
    while len(resolved) < len(nodes):
        learning = _resolve_ready(nodes, sources, states, resolved)
        states |= _learn(learning, frame, sources, resolved, engine)
    return states


def _resolve_ready(
    nodes: Sequence[Node],
    sources: Features,
    states: Mapping[int, State],
    resolved: dict[Node, Features],
) -> dict[int, OperatorNode]:
    """Resolve every node that can be; return those that must learn first."""
    learning = {}
    for number, node in enumerate(nodes):
        if node in resolved or any(parent not in resolved for parent in node.parents):
            continue
        if isinstance(node, OperatorNode) and node.operator.learns and number not in states:
            learning[number] = node
        else:
            inputs = [resolved[p] for p in node.parents] or [sources]
            resolved[node] = node.resolve(inputs, states.get(number, {}))
    return learning


def _learn(
    learning: Mapping[int, OperatorNode],
    frame: pl.LazyFrame,
    sources: Features,
    resolved: Mapping[Node, Features],
    engine: str,
) -> dict[int, State]:
    """One pass over the data for all operators that are ready to learn."""
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    schemas = {}
    for number, node in learning.items():
        columns = resolved[node.parents[0]]
        schemas[number] = Schema(f.schema for f in columns.values())
        program = build(
            [(f.schema, f.expression) for f in columns.values()],
            Schema(f.schema for f in sources.values()),
        )
        try:
            partials = node.operator.partial(apply(frame, program), schemas[number])
        except (SchemaError, WorkflowError) as error:
            raise WorkflowError(f"{node.label}: {error}") from error
        queries |= {(number, name): query for name, query in partials.items()}
    tables = dict(zip(queries, collect_all(list(queries.values()), engine), strict=True))
    states = {}
    for number, node in learning.items():
        own = {name: table for (owner, name), table in tables.items() if owner == number}
        try:
            states[number] = node.operator.finish(own, schemas[number])
        except (SchemaError, WorkflowError) as error:
            raise WorkflowError(f"{node.label}: {error}") from error
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
        return pl.collect_all(queries, engine=pl.GPUEngine(raise_on_fail=True))
    return pl.collect_all(queries, engine="streaming")
