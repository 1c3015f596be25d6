"""The graph that `["a", "b"] >> Op()`, `+`, `-` and `[...]` build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from workflow.errors import WorkflowError
from workflow.operator.feature import Selectable, State
from workflow.operator.operator import Operator, OperatorMeta
from workflow.schema.schema import Schema

from .node_columns import join, select
from .row_set import Resolved, rows_of
from .selection import Selection

if TYPE_CHECKING:
    from .fitted_graph import FittedGraph
    from .operator_node import OperatorNode


class Node(Selectable):
    """A set of columns in a workflow: raw columns, or the output of an operator.

    Example:
        >>> from workflow import ops
        >>> ids = ["userId"] + (["movieId"] >> ops.Categorify())
    """

    # The picture of a graph; graph/diagram.py sets it, to avoid a cycle.
    to_html: ClassVar[Callable[[Node], str]]

    def __init__(self, *parents: Node) -> None:
        self._parents = parents
        # The most recently fitted workflow that contains this node.
        self.fitted: FittedGraph | None = None

    @property
    def parents(self) -> tuple[Node, ...]:
        """The nodes whose columns this one takes."""
        return self._parents

    @property
    def output_schema(self) -> Schema:
        """The node's columns, in the most recently fitted workflow that contains it.

        Raises:
            WorkflowError: no workflow with this node is fitted.

        Example:
            >>> from workflow import Workflow, ops
            >>> ids = ["userId"] >> ops.Categorify()
            >>> workflow = Workflow(ids + "price").fit({"userId": [7], "price": [1.5]})
            >>> ids.output_schema
            Schema(userId: int64)
        """
        if self.fitted is None:
            raise WorkflowError(
                f"{self.label} is in no workflow that is fitted. Call fit(data) first."
            )
        return self.fitted.schema_of_node(self)

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:
        """The node's columns, from those of its parents."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The node's name, for messages and pictures."""
        raise NotImplementedError

    def __rshift__(self, operator: Operator | type[Operator] | Callable[..., Any]) -> OperatorNode:
        return OperatorMeta.node_of(self, operator)

    def __add__(self, other: Any) -> Node:
        return self if _is_nothing(other) else SumNode(self, _as_addend(other))

    def __radd__(self, other: Any) -> Node:
        return self if _is_nothing(other) else SumNode(_as_addend(other), self)

    def __sub__(self, other: Any) -> Node:
        """The columns without some of them, given by names or as another node."""
        if isinstance(other, Node) and not isinstance(other, ColumnSelector):
            return SubsetNode(self, Selection(), keep=False, without=other)
        return self if _is_nothing(other) else SubsetNode(self, as_selection(other), keep=False)

    def __rsub__(self, other: Any) -> Node:
        return as_node(other) - self

    def __getitem__(self, names: Any) -> SubsetNode:
        return SubsetNode(self, as_selection(names), keep=True)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "A node cannot be looped over: its columns are known when the workflow is fitted. Write node['a'] or "
            "node[['a', 'b']] for some of them, and look at workflow.output_schema.names after fit."
        )

    def __repr__(self) -> str:
        return self.label

    def _repr_html_(self) -> str:
        return Node.to_html(self)


class ColumnSelector(Node):
    """Columns of the data.

    Args:
        names: a name, a list of names, or "*" for every column. A list within the list is a group,
            for operators that work on groups: HashedCross, TargetEncoding, JoinGroupby and
            Categorify with combined columns.
        tags: every column that has one of these tags in the schema of the data, which is
            `_schema.json` beside the parquet files, or the argument of `fit(data, schema=...)`.
        subgroups: further groups, as in NVTabular: lists of names, or selectors.

    A selector within a list or a group stands for the columns that it selects; within a list it
    forms a group, as a list does.

    The columns selected by "*" and by tags are determined when the workflow is fitted.

    Example:
        >>> from workflow import ops
        >>> scaled = ColumnSelector(tags=["continuous"]) >> ops.Normalize()
        >>> crossed = ColumnSelector([["userId", "genre"], "userId"]) >> ops.JoinGroupby()
    """

    def __init__(
        self, names: Any = (), tags: Any = (), subgroups: Iterable[Any] | ColumnSelector = ()
    ) -> None:
        super().__init__()
        self.selection = (
            names
            if isinstance(names, Selection)
            else Selection.of(_choices(names), tags, _choices(subgroups))
        )

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """The selected columns; the workflow passes the data's columns as the only input."""
        return select(self.selection, inputs[0], "the data", keep=True)

    @property
    def label(self) -> str:
        """The names."""
        return str(self.selection)


class ConcatNode(Node):
    """The columns of several nodes, concatenated.

    Example:
        >>> as_node("userId") + ["price"]
        +
    """

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """All columns; a name may come twice only for the same column."""
        groups = dict.fromkeys(group for result in inputs for group in result.groups)
        return Resolved(
            join([parent.label for parent in self.parents], inputs),
            tuple(groups),
            rows_of("+", inputs),
            tuple(dict.fromkeys(lost for result in inputs for lost in result.lost)),
        )

    @property
    def label(self) -> str:
        """A plus sign."""
        return "+"


class SumNode(ConcatNode):
    """The columns of two nodes, concatenated.

    A sum of a thousand nodes is one node, not a chain of a thousand nodes with more and more
    columns: its parents are the nodes in all nested sums, each once. They are computed on first
    use, since most sums are only intermediate.

    Attributes:
        addends: the two nodes; None once the parents are computed.

    Example:
        >>> (as_node("userId") + "price" + "genre").parents
        ([userId], [price], [genre])
    """

    def __init__(self, left: Node, right: Node) -> None:
        super().__init__()
        self.addends: tuple[Node, ...] = (left, right)

    @property
    def parents(self) -> tuple[Node, ...]:
        """The nodes of the sum."""
        if self.addends:
            # In this order, so that a concurrent thread finds one of the two.
            self._parents = self._flat()
            self.addends = ()
        return self._parents

    def _flat(self) -> tuple[Node, ...]:
        leaves: dict[Node, None] = {}
        visited: set[Node] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if not isinstance(node, ConcatNode):
                leaves[node] = None
            elif node not in visited:
                visited.add(node)
                addends = node.addends if isinstance(node, SumNode) else ()
                waiting += reversed(addends or node.parents)
        return tuple(leaves)


class SubsetNode(Node):
    """Some columns of a node: the selected ones, or all others.

    Args:
        parent: the node.
        selection: the selected columns.
        keep: whether to keep these columns, or drop them.
        without: a node whose columns are dropped too, if the parent has them.

    Example:
        >>> node = as_node(["userId", "price"])
        >>> node["price"], node - "price"
        ([price], - [price])
    """

    def __init__(
        self, parent: Node, selection: Selection, *, keep: bool, without: Node | None = None
    ) -> None:
        super().__init__(parent, *(() if without is None else (without,)))
        self.selection = selection
        self.keep = keep

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """The remaining columns."""
        whole, *without = inputs
        rest = select(self.selection, whole, self.parents[0].label, keep=self.keep)
        dropped = [(name,) for other in without for name in other.columns if name in rest.columns]
        return select(Selection(tuple(dropped)), rest, self.label, keep=False) if dropped else rest

    @property
    def label(self) -> str:
        """The names, or the node, with a minus sign if they are dropped."""
        without = [parent.label for parent in self.parents[1:]]
        return ("" if self.keep else "- ") + ", ".join(without or [str(self.selection)])


class Subgraph(Node):
    """A named part of a workflow, for `get_subworkflow`.

    Args:
        name: the part's name.
        node: its columns; a node, or names.

    Example:
        >>> from workflow import ops
        >>> user = Subgraph("user", ["userId"] >> ops.Categorify())
        >>> item = Subgraph("item", ["movieId"] >> ops.Categorify())
        >>> both = user + item
    """

    def __init__(self, name: str, node: Any) -> None:
        if not isinstance(name, str) or not name:
            raise WorkflowError(f"Expected the name of a subgraph. Received: {name!r}.")
        super().__init__(as_node(node))
        self.name = name

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """The columns of the part."""
        return inputs[0]

    @property
    def label(self) -> str:
        """The name."""
        return f"Subgraph {self.name}"


def as_node(value: Any) -> Node:
    """Convert the left operand of `>>` to a node: a name, a list of names and nodes, or a node.

    Within a list, a list is a group, and so are the columns of a node.

    Raises:
        WorkflowError: anything else, or groups within groups.

    Example:
        >>> as_node([["userId", "genre"], "price"])
        [[userId, genre], price]
    """
    if isinstance(value, Node):
        return value
    items = _listed(value)
    if not _holds_node(items):
        return ColumnSelector(items)
    members = [_together(item) if isinstance(item, Node) else _member(item) for item in items]
    return members[0] if len(members) == 1 else ConcatNode(*members)


def as_columns(value: Any) -> Node:
    """Convert a set of columns, grouped or not, to a node: outputs and dependencies.

    Raises:
        WorkflowError: it is neither a name, nor a list of names and nodes, nor a node.

    Example:
        >>> as_columns(["price", ColumnSelector("userId")]).parents
        ([price], [userId])
    """
    if isinstance(value, Node):
        return value
    items = _listed(value)
    return ConcatNode(*map(as_columns, items)) if _holds_node(items) else ColumnSelector(items)


def _is_nothing(value: Any) -> bool:
    return isinstance(value, list | tuple) and not value


def _as_addend(value: Any) -> Node:
    """Convert an operand of `+` to a node; a list with a node in it is one group, as in NVTabular."""
    if isinstance(value, list | tuple) and any(isinstance(item, Node) for item in value):
        return _group(value)
    return as_node(value)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    items = list(value) if isinstance(value, Iterable) else []
    if items and all(isinstance(item, str | list | tuple | Node) for item in items):
        return items
    alone = f"the operator {value.label} alone" if isinstance(value, Operator) else repr(value)
    raise WorkflowError(
        "Expected a column name, a list of them, or a node such as ['userId'] >> ops.Categorify(). "
        f"Received: {alone}."
    )


def _holds_node(items: Iterable[Any]) -> bool:
    """Whether a node is among some items, or in a list among them."""
    return any(
        isinstance(item, Node) or (isinstance(item, list | tuple) and _holds_node(item))
        for item in items
    )


def _member(item: Any) -> Node:
    return (
        _group(item)
        if _holds_node([item]) and not isinstance(item, str)
        else ColumnSelector([item])
    )


def _group(items: Sequence[Any]) -> Node:
    """Combine the columns of names and nodes into one group."""
    nodes = []
    for item in items:
        if not isinstance(item, str | Node):
            raise _nested(item)
        nodes.append(as_columns(item))
    return _together(nodes[0] if len(nodes) == 1 else ConcatNode(*nodes))


def _together(node: Node) -> Node:
    """Combine the columns of a node into one group; refuse at once if they are known to be grouped."""
    for part in (node, *(node.parents if isinstance(node, ConcatNode) else ())):
        if isinstance(part, ColumnSelector | SubsetNode) and part.selection.has_groups:
            raise _nested(part)
    return SubsetNode(node, Selection.as_one_group(), keep=True)


def _nested(item: Any) -> WorkflowError:
    return WorkflowError(
        "Expected a group as a list of names and of nodes without groups, one level deep, such as "
        f"[[node, 'a'], 'b']. Received: {item!s:.200} within a group."
    )


def _choices(value: Any) -> Any:
    """The value with the selections of nested selectors in place of the selectors."""
    if isinstance(value, ColumnSelector):
        return value.selection
    if isinstance(value, Node):
        raise WorkflowError(
            f"Expected column names or a ColumnSelector. Received: the node {value}. "
            "Concatenate nodes with +, or put them into a list as a group."
        )
    return [_choices(item) for item in value] if isinstance(value, list | tuple) else value


def as_selection(value: Any) -> Selection:
    """A selection of names, of groups of names, or of a `ColumnSelector`.

    Raises:
        WorkflowError: anything else.

    Example:
        >>> as_selection(["userId", "price"]).groups
        (('userId',), ('price',))
    """
    chosen = _choices(value)
    return chosen if isinstance(chosen, Selection) else Selection.of(chosen)
