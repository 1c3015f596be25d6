"""The order of a graph's nodes, and the columns that each node makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from workflow.operator.feature import State
from workflow.schema.schema import Schema
from workflow.schema.tags import properties_after

from .domains import DomainNames
from .node import ColumnSelector, Node
from .operator_node import OperatorNode
from .row_set import Resolved, RowSet
from .selection import names_of, regroup


def topological(output: Node) -> list[Node]:
    """All ancestors of a node and itself, parents before children.

    A node is made of others, so none is its own ancestor.

    Example:
        >>> from workflow.graph.node import as_node
        >>> topological(as_node("a") + "b")
        [[a], [b], +]
    """
    order: list[Node] = []
    visited: set[Node] = set()
    # The nodes from the output down to the current one, with the parents still to visit.
    path: dict[Node, Iterator[Node]] = {output: iter(output.parents)}
    while path:
        node, parents = next(reversed(path.items()))
        parent = next((p for p in parents if p not in visited), None)
        if parent is not None:
            path[parent] = iter(parent.parents)
            continue
        del path[node]
        visited.add(node)
        order.append(node)
    return order


def columns_read(nodes: Iterable[Node], tags: Mapping[str, Collection[str]]) -> list[str]:
    """The columns of the data that a graph selects.

    Raises:
        WorkflowError: a column is missing, or none has a tag.

    Example:
        >>> from workflow import ColumnSelector
        >>> columns_read([ColumnSelector(tags="user")], {"price": (), "userId": ("user",)})
        ['userId']
    """
    choices = [node.selection for node in nodes if isinstance(node, ColumnSelector)]
    names = dict.fromkeys(name for c in choices for name in names_of(c.pick(tags, "the data")))
    if any(choice.is_dynamic for choice in choices):
        # A workflow that takes all columns keeps the order of the data.
        return [name for name in tags if name in names]
    return list(names)


class Resolution:
    """Columns of a graph's nodes, computed one by one, parents before children.

    Example:
        >>> from workflow import ColumnSchema
        >>> from workflow.graph.node import as_node
        >>> data = Schema([ColumnSchema("a", "int64"), ColumnSchema("b", "int64")])
        >>> Resolution(data).resolve(as_node("b"), {}).groups
        (('b',),)
    """

    def __init__(self, inputs: Schema) -> None:
        rows = RowSet(inputs)
        columns = rows.features()
        self._data = Resolved(columns, regroup((), columns), rows)
        self.made: dict[Node, Resolved] = {}

    def inputs(self, node: Node) -> list[Resolved]:
        """Input of a node: its parents' columns, or the columns of the data."""
        return [self.made[parent] for parent in node.parents] or [self._data]

    def resolve(self, node: Node, state: State) -> Resolved:
        """Compute the columns of a node whose parents are resolved."""
        self.made[node] = node.resolve(self.inputs(node), state)
        return self.made[node]


def resolve_graph(
    nodes: Sequence[Node], states: Mapping[int, State], inputs: Schema, *, learnt: bool = True
) -> dict[Node, Resolved]:
    """Columns of each node of a fitted graph, with unique names for its vocabularies.

    Args:
        nodes: parents before children.
        states: states of the operators, by the number of the node.
        inputs: the columns of the data.
        learnt: whether the states are from data; else no facts are known about dependent values.

    Example:
        >>> from workflow import ColumnSchema, ops
        >>> nodes = topological(["a"] >> ops.FillMissing(0))
        >>> made = resolve_graph(nodes, {}, Schema([ColumnSchema("a", "int64")]))
        >>> made[nodes[-1]].columns["a"].schema.nullable
        False
    """
    resolution, names = Resolution(inputs), DomainNames(inputs)
    for number, node in enumerate(nodes):
        result = resolution.resolve(node, states.get(number, {}))
        if isinstance(node, OperatorNode) and node.operator.learns and not learnt:
            resolution.made[node] = _without_facts(result)
        elif isinstance(node, OperatorNode) and node.operator.has_vocabularies:
            resolution.made[node] = names.given(result)
    return resolution.made


def _without_facts(result: Resolved) -> Resolved:
    columns = {}
    for name, feature in result.columns.items():
        properties = properties_after(feature.schema, is_list=False)
        columns[name] = replace(feature, schema=feature.schema.with_(properties=properties))
    return replace(result, columns=columns)
