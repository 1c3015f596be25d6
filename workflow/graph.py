"""The graph that `["a", "b"] >> Op()`, `+`, `-` and `[...]` build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from .errors import WorkflowError
from .expressions.verbs import ExpressionError
from .frame_operator import FrameOperator, WindowOperator
from .operator import Features, Inputs, Operator, Selectable, State
from .rows import Origin, Resolved, RowSet, rows_of, schema_of
from .schema import SchemaError
from .selection import Selection, names_of, regroup


class Node(Selectable):
    """A set of columns in a workflow: raw ones, or what an operator makes of them.

    Example:
        >>> from workflow import ops
        >>> ids = ["userId"] + (["movieId"] >> ops.Categorify())
    """

    def __init__(self, *parents: Node) -> None:
        self.parents = parents

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:
        """The node's columns, from those of its parents."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The node's name, for messages and pictures."""
        raise NotImplementedError

    def __rshift__(self, operator: Operator | type[Operator] | Callable[..., Any]) -> OperatorNode:
        return OperatorNode(self, operator)

    def __add__(self, other: Any) -> ConcatNode:
        return ConcatNode(self, as_node(other))

    def __radd__(self, other: Any) -> ConcatNode:
        return ConcatNode(as_node(other), self)

    def __sub__(self, names: Any) -> SubsetNode:
        return SubsetNode(self, as_selection(names), keep=False)

    def __getitem__(self, names: Any) -> SubsetNode:
        return SubsetNode(self, as_selection(names), keep=True)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "A node cannot be looped over: its columns are known when the workflow is fitted. Write node['a'] or "
            "node[['a', 'b']] for some of them, and look at workflow.output_schema.names after fit."
        )

    def __repr__(self) -> str:
        return self.label


class ColumnSelector(Node):
    """Columns of the data.

    Args:
        names: a name, a list of names, or "*" for every column. A list within the list is a group,
            for the operators that work on groups: HashedCross, TargetEncoding, JoinGroupby and
            Categorify with combined columns.
        tags: every column that carries one of these tags in the schema of the data, which is
            `schema.json` beside the parquet files, or what `fit(data, schema=...)` is given.
        subgroups: further groups, as NVTabular writes them.

    Which columns "*" and tags choose is settled when the workflow is fitted.

    Example:
        >>> from workflow import ops
        >>> scaled = ColumnSelector(tags=["continuous"]) >> ops.Normalize()
        >>> crossed = ColumnSelector([["userId", "genre"], "userId"]) >> ops.JoinGroupby()  # doctest: +SKIP
    """

    def __init__(
        self, names: Any = (), tags: Any = (), subgroups: Iterable[Iterable[str]] = ()
    ) -> None:
        super().__init__()
        self.selection = (
            names if isinstance(names, Selection) else Selection.of(names, tags, subgroups)
        )

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """The chosen columns; the workflow gives the data's as the one input."""
        return _select(self.selection, inputs[0], "the data", keep=True)

    @property
    def label(self) -> str:
        """The names."""
        return str(self.selection)


@dataclass(frozen=True)
class Bound:
    """An operator at its place: what it works on, its dependencies among the columns."""

    operator: Operator
    columns: Features
    rows: RowSet


class OperatorNode(Node):
    """What an operator makes of a node's columns.

    Args:
        parent: the node.
        operator: an operator, an operator's class, or a function for LambdaOp.
        dependencies: the nodes that the operator's setting names; None to take them from there.
    """

    def __init__(
        self,
        parent: Node,
        operator: Operator | type[Operator] | Callable[..., Any],
        dependencies: Sequence[Node] | None = None,
    ) -> None:
        self.operator = _as_operator(operator)
        if dependencies is None:
            dependencies = _dependencies(self.operator)
        super().__init__(parent, *dependencies)

    def bind(self, inputs: Sequence[Resolved]) -> Bound:
        """The operator with its groups and dependencies.

        Raises:
            WorkflowError: the inputs have different rows, or columns of one name.
        """
        own, *others = inputs
        columns = _join(self.parents, inputs)
        inner = Inputs(own.groups, tuple(name for other in others for name in other.columns))
        return Bound(self.operator.bind(inner), columns, rows_of(self.label, inputs))

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:
        """The operator's output columns."""
        bound = self.bind(inputs)
        operator, rows = bound.operator, bound.rows
        with self.errors(bound.columns):
            if isinstance(operator, FrameOperator):
                made = operator.frame_schema(schema_of(bound.columns))
                rows = RowSet(made, Origin(operator, rows, bound.columns))
                columns = rows.features()
            elif isinstance(operator, WindowOperator):
                columns = rows.windowed(operator, bound.columns)
            else:
                columns = operator.lower(bound.columns, state)
        groups = () if operator.takes_groups else inputs[0].groups
        return Resolved(columns, regroup(groups, columns), rows)

    @contextmanager
    def errors(self, columns: Features) -> Iterator[None]:
        """Say in an error which operator it is of, and over which columns.

        Raises:
            WorkflowError: in place of the errors of expressions and schemas.
        """
        try:
            yield
        except (ExpressionError, SchemaError, WorkflowError) as error:
            raise WorkflowError(f"{self.label} over {', '.join(columns)}: {error}") from error

    @property
    def label(self) -> str:
        """The operator's name."""
        return self.operator.label


class ConcatNode(Node):
    """The columns of several nodes side by side."""

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """All columns; a name may come twice only for one and the same column."""
        groups = dict.fromkeys(group for made in inputs for group in made.groups)
        return Resolved(_join(self.parents, inputs), tuple(groups), rows_of("+", inputs))

    @property
    def label(self) -> str:
        """A plus sign."""
        return "+"


class SubsetNode(Node):
    """Some columns of a node: those chosen, or all others."""

    def __init__(self, parent: Node, selection: Selection, *, keep: bool) -> None:
        super().__init__(parent)
        self.selection = selection
        self.keep = keep

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:  # noqa: ARG002
        """The columns that stay."""
        return _select(self.selection, inputs[0], self.parents[0].label, keep=self.keep)

    @property
    def label(self) -> str:
        """The names, with a minus sign where they are dropped."""
        return ("" if self.keep else "- ") + str(self.selection)


class Subgraph(Node):
    """A part of a workflow that has a name, so that `get_subworkflow` finds it.

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
    """A node of a name, of a list of names and nodes, or the node itself.

    Raises:
        WorkflowError: anything else.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, str):
        return ColumnSelector(value)
    if isinstance(value, Iterable):
        items = list(value)
        if items and not any(isinstance(item, Node) for item in items):
            return ColumnSelector(items)
        if items and all(isinstance(item, str | list | tuple | Node) for item in items):
            return ConcatNode(*(i if isinstance(i, Node) else ColumnSelector([i]) for i in items))
    raise WorkflowError(f"Expected a column name, a list of them or a node. Received: {value!r}.")


def as_selection(value: Any) -> Selection:
    """A choice of names, of groups of names, or what a `ColumnSelector` chooses.

    Raises:
        WorkflowError: anything else.
    """
    if isinstance(value, ColumnSelector):
        return value.selection
    if isinstance(value, Node):
        raise WorkflowError(
            f"Expected column names or a ColumnSelector. Received: the node {value}."
        )
    return Selection.of(value)


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


def _as_operator(value: Any) -> Operator:
    if isinstance(value, Operator):
        return value
    if isinstance(value, type) and issubclass(value, Operator):
        try:
            return value()
        except TypeError as error:
            raise WorkflowError(
                f"Expected an operator after >>; {value.__name__} needs settings. Received: {value!r} ({error})."
            ) from error
    if callable(value) and not isinstance(value, type):
        from .ops.lambda_op import LambdaOp  # noqa: PLC0415 - operators know the graph

        return LambdaOp(value)
    raise WorkflowError(
        f"Expected an operator after >>, such as ops.Categorify(), or a function. Received: {value!r}."
    )


def _dependencies(operator: Operator) -> list[Node]:
    given = None if operator.depends_on is None else getattr(operator, operator.depends_on)
    return [] if given is None or given == [] else [as_node(given)]


def _join(parents: Sequence[Node], inputs: Sequence[Resolved]) -> Features:
    joined: Features = {}
    for parent, made in zip(parents, inputs, strict=True):
        for name, feature in made.columns.items():
            if name in joined and joined[name].expression is not feature.expression:
                raise WorkflowError(
                    f"Two columns are named {name!r}, one of them from {parent.label}. Rename or drop one."
                )
            joined.setdefault(name, feature)
    return joined


def _select(selection: Selection, made: Resolved, where: str, *, keep: bool) -> Resolved:
    columns = made.columns
    groups = selection.pick({n: f.schema.tags for n, f in columns.items()}, where)
    names = names_of(groups)
    if keep:
        # Groups that were made before stay, where no new ones are chosen.
        chosen = any(len(group) > 1 for group in groups)
        groups = groups if chosen else regroup(made.groups, names)
    else:
        names = [name for name in columns if name not in names]
        groups = regroup(made.groups, names)
    return Resolved({name: columns[name] for name in names}, groups, made.rows)
