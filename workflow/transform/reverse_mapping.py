"""Ids mapped back to the values that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import polars as pl

from workflow.errors import WorkflowError
from workflow.expressions.language.tree import Expression
from workflow.graph.fits import fits_of_sources, with_fits
from workflow.graph.fitted_graph import FittedGraph
from workflow.graph.operator_node import Bound, OperatorNode
from workflow.graph.row_set import Resolved, RowSet
from workflow.operator.feature import Feature, State
from workflow.ops.categorify import Categorify
from workflow.schema.names import did_you_mean, listed
from workflow.schema.tags import fits_of


def reverse_mapping(workflow: FittedGraph, output: str) -> pl.DataFrame:
    """Meaning of each id of an output; see `Workflow.reverse_mapping`.

    Args:
        workflow: a fitted workflow.
        output: the name of an output of Categorify; it may have been renamed or cast.

    Raises:
        WorkflowError: there is no such output, or its values are not ids of Categorify.
    """
    meanings = [ids.meanings() for ids in _candidates(workflow, output)]
    if not meanings or not all(meanings[0].equals(other) for other in meanings[1:]):
        raise WorkflowError(
            f"Output {output!r} is not made by Categorify, or further operators changed the ids."
        )
    return meanings[0]


def fits_of_values(workflow: FittedGraph, output: str) -> set[str]:
    """The digests of the ids that the values of an output's vocabulary are, or were computed from.

    Empty where the values are those of the data: they have the same meaning in every fit.

    Args:
        workflow: a fitted workflow.
        output: the name of an output that `reverse_mapping` takes.
    """
    ids = _candidates(workflow, output)[0]
    steps = list(_steps_to(ids.expression))[1:]
    read = {step.parameters["name"] for step in steps if step.verb == "source"}
    found = {fit for name, fit in fits_of_sources(ids.rows).items() if name in read}
    for other in _ids(workflow):
        if any(other.expression is step for step in steps):
            [made] = with_fits(
                other.rows.program([other.feature]), other.rows
            ).output_schema.columns
            found |= set(fits_of([made]).values())
    return found


def _candidates(workflow: FittedGraph, output: str) -> list[_Ids]:
    """The columns of ids that an output may be, which all have the meanings of its ids if it is one."""
    last = workflow.made[workflow.nodes[-1]]
    if output not in last.columns:
        raise WorkflowError(
            f"No output {output!r}. The outputs are: {listed(last.columns)}."
            + did_you_mean([output], last.columns)
        )
    feature = last.columns[output]
    steps = list(_ways_back(feature.expression, last))
    domain = feature.schema.properties.get("domain")
    candidates = [ids for ids in _ids(workflow) if any(ids.expression is step for step in steps)]
    # Operators over frames, such as Groupby, make new columns; the domain still identifies the ids.
    return candidates or [ids for ids in _ids(workflow) if domain and ids.domain == domain]


@dataclass(frozen=True)
class _Ids:
    """A column of ids as Categorify makes it."""

    name: str
    feature: Feature
    bound: Bound
    state: State

    @property
    def rows(self) -> RowSet:
        return self.bound.rows

    @property
    def expression(self) -> Expression:
        return _without_casts(self.feature.expression)

    @property
    def domain(self) -> Any:
        return self.feature.schema.properties["domain"]

    def meanings(self) -> pl.DataFrame:
        operator = cast("Categorify", self.bound.operator)
        return operator.meanings(self.name, self.bound.columns, self.state)


def _ids(workflow: FittedGraph) -> Iterator[_Ids]:
    results = workflow.made
    for number, node in enumerate(workflow.nodes):
        if isinstance(node, OperatorNode) and isinstance(node.operator, Categorify):
            bound = node.bind([results[parent] for parent in node.parents])
            for name, feature in results[node].columns.items():
                yield _Ids(name, feature, bound, workflow.states[number])


def _ways_back(expression: Expression, result: Resolved) -> Iterator[Expression]:
    """An expression, and the expressions it was derived from before rows were selected."""
    rows = result.rows
    while True:
        expression = _without_casts(expression)
        yield expression
        origin = rows.origin
        name = expression.parameters.get("name") if expression.verb == "source" else None
        if origin is None or name not in origin.columns:
            return
        expression, rows = origin.columns[name].expression, origin.rows


def _steps_to(expression: Expression) -> Iterator[Expression]:
    """An expression, and all that it is computed from, each once."""
    found = {id(expression): expression}
    todo = [expression]
    while todo:
        step = todo.pop()
        yield step
        further = {id(operand): operand for operand in step.operands if id(operand) not in found}
        found |= further
        todo += further.values()


def _without_casts(expression: Expression) -> Expression:
    while expression.verb == "cast":
        expression = expression.operands[0]
    return expression
