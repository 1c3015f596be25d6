"""What every node of a graph makes, worked out from the data's columns downwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .graph import Node
from .operator import State
from .rows import Resolved, RowSet
from .schema import Schema
from .selection import regroup


class Resolution:
    """What the nodes of a graph make, found one by one, parents before children.

    Args:
        inputs: the columns of the data.
    """

    def __init__(self, inputs: Schema) -> None:
        rows = RowSet(inputs)
        columns = rows.features()
        self._data = Resolved(columns, regroup((), columns), rows)
        self.made: dict[Node, Resolved] = {}

    def inputs(self, node: Node) -> list[Resolved]:
        """What a node works on: its parents' columns, or the data's."""
        return [self.made[parent] for parent in node.parents] or [self._data]

    def resolve(self, node: Node, state: State) -> Resolved:
        """Find what a node makes, that of its parents being known."""
        self.made[node] = node.resolve(self.inputs(node), state)
        return self.made[node]


def resolve_graph(
    nodes: Sequence[Node], states: Mapping[int, State], inputs: Schema
) -> dict[Node, Resolved]:
    """What each node of a fitted graph makes."""
    resolution = Resolution(inputs)
    for number, node in enumerate(nodes):
        resolution.resolve(node, states.get(number, {}))
    return resolution.made
