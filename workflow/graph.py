"""The graph that `["a", "b"] >> Op()`, `+`, `-` and `[...]` build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .errors import WorkflowError
from .expressions.verbs import ExpressionError
from .operator import Feature, Features, Operator, State
from .schema import SchemaError


class Node:
    """A set of columns in a workflow: raw ones, or what an operator makes of them.

    Example:
        >>> from workflow import ops
        >>> ids = ["userId"] + (["movieId"] >> ops.Categorify())
    """

    def __init__(self, *parents: Node) -> None:
        self.parents = parents

    def resolve(self, inputs: Sequence[Features], state: State) -> Features:
        """The node's columns, from those of its parents."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The node's name, for messages and pictures."""
        raise NotImplementedError

    def __rshift__(self, operator: Operator | type[Operator]) -> OperatorNode:
        return OperatorNode(self, operator)

    def __add__(self, other: Any) -> ConcatNode:
        return ConcatNode(self, as_node(other))

    def __radd__(self, other: Any) -> ConcatNode:
        return ConcatNode(as_node(other), self)

    def __sub__(self, names: str | Iterable[str]) -> SubsetNode:
        return SubsetNode(self, _names(names), keep=False)

    def __getitem__(self, names: str | Iterable[str]) -> SubsetNode:
        return SubsetNode(self, _names(names), keep=True)

    def __repr__(self) -> str:
        return self.label


class SelectNode(Node):
    """Columns of the data."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)

    def resolve(self, inputs: Sequence[Features], state: State) -> Features:  # noqa: ARG002
        """The named columns; the workflow gives the data's as the one input."""
        return _pick(inputs[0], self.names, "the data")

    @property
    def label(self) -> str:
        """The names."""
        return "[" + ", ".join(self.names) + "]"


class OperatorNode(Node):
    """What an operator makes of a node's columns."""

    def __init__(self, parent: Node, operator: Operator | type[Operator]) -> None:
        super().__init__(parent)
        operator = operator() if isinstance(operator, type) else operator
        if not isinstance(operator, Operator):
            raise WorkflowError(
                f"Expected an operator after >>, such as ops.Categorify(). Received: {operator!r}."
            )
        self.operator = operator

    def resolve(self, inputs: Sequence[Features], state: State) -> Features:
        """The operator's output columns."""
        try:
            return self.operator.lower(inputs[0], state)
        except (ExpressionError, SchemaError, WorkflowError) as error:
            raise WorkflowError(f"{self.label} over {', '.join(inputs[0])}: {error}") from error

    @property
    def label(self) -> str:
        """The operator's name."""
        return self.operator.label


class ConcatNode(Node):
    """The columns of several nodes side by side."""

    def resolve(self, inputs: Sequence[Features], state: State) -> Features:  # noqa: ARG002
        """All columns; a name may come twice only for one and the same column."""
        joined: Features = {}
        for parent, columns in zip(self.parents, inputs, strict=True):
            for name, feature in columns.items():
                if name in joined and joined[name].expression is not feature.expression:
                    raise WorkflowError(
                        f"Two columns are named {name!r}, one of them from {parent.label}. Rename or drop one."
                    )
                joined.setdefault(name, feature)
        return joined

    @property
    def label(self) -> str:
        """A plus sign."""
        return "+"


class SubsetNode(Node):
    """Some columns of a node: those named, or all others."""

    def __init__(self, parent: Node, names: Sequence[str], *, keep: bool) -> None:
        super().__init__(parent)
        self.names = tuple(names)
        self.keep = keep

    def resolve(self, inputs: Sequence[Features], state: State) -> Features:  # noqa: ARG002
        """The columns that stay."""
        named = _pick(inputs[0], self.names, self.parents[0].label)
        return named if self.keep else {n: f for n, f in inputs[0].items() if n not in named}

    @property
    def label(self) -> str:
        """The names, with a minus sign where they are dropped."""
        return ("" if self.keep else "- ") + "[" + ", ".join(self.names) + "]"


def as_node(value: Any) -> Node:
    """A node of a name, of a list of names and nodes, or the node itself.

    Raises:
        WorkflowError: anything else.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, str):
        return SelectNode([value])
    if isinstance(value, Iterable):
        items = list(value)
        if items and all(isinstance(item, str) for item in items):
            return SelectNode(items)
        if items and all(isinstance(item, str | Node) for item in items):
            return ConcatNode(*map(as_node, items))
    raise WorkflowError(f"Expected a column name, a list of them or a node. Received: {value!r}.")


def topological(output: Node) -> list[Node]:
    """All nodes under one, parents before children.

    Raises:
        WorkflowError: a node is its own ancestor.
    """
    order: list[Node] = []
    done: set[Node] = set()
    # The nodes from the output down to the present one, with the parents still to visit.
    path: dict[Node, Iterator[Node]] = {output: iter(output.parents)}
    while path:
        node, parents = next(reversed(path.items()))
        parent = next((p for p in parents if p not in done), None)
        if parent in path:
            raise WorkflowError(f"{parent} is made of itself: the graph has a cycle.")
        if parent is not None:
            path[parent] = iter(parent.parents)
            continue
        del path[node]
        done.add(node)
        order.append(node)
    return order


def _names(names: str | Iterable[str]) -> list[str]:
    chosen = [names] if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) for name in chosen):
        raise WorkflowError(f"Expected column names. Received: {chosen!r}.")
    return chosen


def _pick(columns: Features, names: Sequence[str], where: str) -> dict[str, Feature]:
    missing = [name for name in names if name not in columns]
    if missing:
        raise WorkflowError(
            f"No column {', '.join(map(repr, missing))} in {where}. It has: {', '.join(columns) or 'none'}."
        )
    return {name: columns[name] for name in names}
