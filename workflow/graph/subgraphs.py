"""A named part of a workflow, as a separate workflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from workflow.errors import WorkflowError

from .fitted_graph import FittedGraph
from .node import ColumnSelector, Node, Subgraph

if TYPE_CHECKING:
    from workflow.schema.schema import ColumnSchema, Schema

    from .row_set import Resolved


_Workflow = TypeVar("_Workflow", bound=FittedGraph)


def subgraphs(nodes: Iterable[Node]) -> dict[str, Subgraph]:
    """The named parts of a graph.

    Raises:
        WorkflowError: two parts have one name.

    Example:
        >>> list(subgraphs([Subgraph("user", "userId")]))
        ['user']
    """
    named: dict[str, Subgraph] = {}
    for node in nodes:
        if isinstance(node, Subgraph) and named.setdefault(node.name, node) is not node:
            raise WorkflowError(f"Two subgraphs are named {node.name!r}. Rename one.")
    return named


def subworkflow(workflow: _Workflow, name: str, make: Callable[[Node], _Workflow]) -> _Workflow:
    """The part of a workflow with a name; see `Workflow.get_subworkflow`.

    Args:
        workflow: fitted or not.
        name: the name of a `Subgraph`.
        make: the class `Workflow`, which is in a layer above this module.

    Example:
        >>> from workflow import Workflow
        >>> subworkflow(Workflow(Subgraph("user", "userId") + "price"), "user", Workflow)
        Workflow(not fitted)
    """
    named = subgraphs(workflow.nodes)
    if name not in named:
        have = ", ".join(map(repr, named)) or "none"
        raise WorkflowError(f"No subgraph {name!r} in the workflow. It has: {have}.")
    part = make(named[name])
    if not workflow.is_fitted:
        return part
    numbers = {node: number for number, node in enumerate(workflow.nodes)}
    states = {
        number: workflow.states[numbers[node]]
        for number, node in enumerate(part.nodes)
        if numbers[node] in workflow.states
    }
    inputs = inputs_read(part.nodes, workflow.made, workflow.input_schema)
    part.restore(inputs, states, {}, workflow.training_data)
    # An assigned dtype belongs to a column, and is kept if the column is an output of both.
    outputs, whole = part.outputs(), workflow.outputs()
    for column, dtype in workflow.output_dtypes.assigned.items():
        if column in outputs and _alike(whole[column].schema, outputs[column].schema):
            part.output_dtypes[column] = dtype
    return part


def inputs_read(nodes: Iterable[Node], made: Mapping[Node, Resolved], inputs: Schema) -> Schema:
    """The columns of the data that some nodes select.

    Example:
        >>> from workflow import Workflow
        >>> workflow = Workflow(["userId", "price"]).fit({"userId": [7], "price": [1.0]})
        >>> inputs_read(workflow.nodes, workflow.made, workflow.input_schema).names
        ['userId', 'price']
    """
    names = {
        name for node in nodes if isinstance(node, ColumnSelector) for name in made[node].columns
    }
    return inputs.select(name for name in inputs if name in names)


def _alike(one: ColumnSchema, other: ColumnSchema) -> bool:
    """Whether two columns are equal except for the name of the domain, which depends on the graph."""
    return _without_domain(one) == _without_domain(other)


def _without_domain(column: ColumnSchema) -> ColumnSchema:
    return column.with_(properties={k: v for k, v in column.properties.items() if k != "domain"})
