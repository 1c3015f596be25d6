"""Whether an operator can continue with fewer columns, and with which part of its state.

Nothing is assumed: the operator's program over the remaining columns is compared, step by step and
table by table, with its program over all columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

import numpy as np

from workflow.errors import WorkflowError
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.program.program import Program, build
from workflow.expressions.program.program_json import program_to_json
from workflow.operator.feature import Feature, Features, State
from workflow.operator.frame_operator import FrameOperator, ManyRowsOperator
from workflow.operator.operator import Operator
from workflow.schema.column import Array
from workflow.schema.dtypes import SchemaError
from workflow.schema.schema import Schema

from .operator_node import Bound
from .row_set import schema_of


def without_settings(operator: Operator, columns: AbstractSet[str]) -> Operator:
    """The operator without settings for other columns, which it would refuse when fitted again.

    Example:
        >>> from workflow import ops
        >>> without_settings(ops.Categorify(max_size={"a": 9, "b": 5}), {"b"}).max_size
        {'a': 9}
    """
    changed: dict[str, Any] = {}
    for name in operator.saved_fields():
        value = getattr(operator, name)
        if isinstance(value, Mapping) and not columns.isdisjoint(value):
            changed[name] = {key: set_ for key, set_ in value.items() if key not in columns}
    try:
        return dataclasses.replace(operator, **changed) if changed else operator
    except WorkflowError:
        return operator  # It requires these columns; a later check finds that it cannot continue.


def states(old: Bound, state: State, names: Iterable[str]) -> Iterator[State]:
    """Parts of a state for some of the columns that it was learnt from.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["a", "b"] >> ops.Normalize()).fit({"a": [1, 3], "b": [5, 5]})
        >>> bound = workflow.nodes[-1].bind([workflow.made[workflow.nodes[0]]])
        >>> next(states(bound, workflow.states[1], ["a"]))["mean"].array.tolist()
        [2.0]
    """
    if not old.operator.learns:
        yield {}
        return
    yield from old.operator.restrict(state, schema_of(old.columns), names)
    yield state  # It may not concern these columns at all, such as a table to join.


def goes_on(old: Bound, state: State, new: Bound, kept: State) -> bool:
    """Whether an operator makes the same of the remaining columns as before.

    Args:
        old: the operator over all columns.
        state: its state.
        new: the operator over the remaining columns.
        kept: the remaining part of the state.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["a", "b"] >> ops.FillMissing(0)).fit({"a": [1], "b": [5]})
        >>> whole = workflow.nodes[-1].bind([workflow.made[workflow.nodes[0]]])
        >>> part = dataclasses.replace(whole, columns={"a": whole.columns["a"]})
        >>> goes_on(whole, {}, part, {})
        True
    """
    try:
        if isinstance(new.operator, ManyRowsOperator):
            return _same_frame(old, new)
        return _same_steps(old, state, new, kept)
    except (WorkflowError, ExpressionError, SchemaError):
        return False  # The operator refuses the remaining columns.


def passed_on(old: Bound, state: State) -> list[str]:
    """The columns that an operator passes through unchanged: they remain even if it does not.

    Example:
        >>> from workflow import Workflow, ops
        >>> table = {"movieId": [1], "year": [1999]}
        >>> node = ["movieId", "price"] >> ops.JoinExternal(table, on="movieId")
        >>> workflow = Workflow(node).fit({"movieId": [1], "price": [2.0]})
        >>> bound = node.bind([workflow.made[node.parents[0]]])
        >>> passed_on(bound, workflow.states[1])
        ['movieId', 'price']
    """
    if not old.operator.row_by_row:
        return []
    sources = _sources(schema_of(old.columns))
    features = old.operator.lower(sources, state)
    return [
        name
        for name, feature in features.items()
        if name in sources
        and feature.expression is sources[name].expression
        and feature.schema == sources[name].schema
    ]


def _same_frame(old: Bound, new: Bound) -> bool:
    before, after = schema_of(old.columns), schema_of(new.columns)
    dependencies = set(old.operator.dependency_names())
    if isinstance(new.operator, FrameOperator):
        dependencies |= new.operator.needs(before)
    if not dependencies <= set(after):
        return False
    operators = [cast("ManyRowsOperator", bound.operator) for bound in (old, new)]
    was, now = (o.frame_schema(c) for o, c in zip(operators, (before, after), strict=True))
    return bool(now) and all(name in was and was[name] == now[name] for name in now)


def _same_steps(old: Bound, state: State, new: Bound, new_state: State) -> bool:
    before, after = schema_of(old.columns), schema_of(new.columns)
    was = old.operator.lower(_sources(before), state)
    now = new.operator.lower(_sources(after), new_state)
    whole = _program(was.values(), before)
    places = {column.name: step for column, step in whole.outputs}
    reads = {name: whole.sources_of_steps([places[f.schema.name]]) for name, f in was.items()}
    remaining = {name for name, sources in reads.items() if sources and sources <= set(after)}
    if not now or not remaining <= set(now) <= set(was):
        return False
    return _equal(_program([was[name] for name in now], before), _program(now.values(), after))


def _sources(columns: Schema) -> Features:
    return {
        c.name: Feature(source(c.name, Type(c.dtype, c.is_list, c.nullable)), c)
        for c in columns.columns
    }


def _program(features: Iterable[Feature], columns: Schema) -> Program:
    return build([(feature.schema, feature.expression) for feature in features], columns)


def _equal(one: Program, other: Program) -> bool:
    tables: dict[str, Array] = {}
    other_tables: dict[str, Array] = {}
    same = program_to_json(one, tables) == program_to_json(other, other_tables)
    if not same or tables.keys() != other_tables.keys():
        return False
    pairs = ((tables[name], other_tables[name]) for name in tables)
    return all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs
    )
