"""What an operator is: a configuration, what it learns from data, and what it lowers to."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import polars as pl

from .errors import WorkflowError
from .expressions.column import Column
from .expressions.tree import Expression
from .schema import ColumnSchema, Schema
from .tags import add_tags, properties_after

if TYPE_CHECKING:
    from .graph import Node
    from .operator_node import OperatorNode

State = Mapping[str, Column]
Partials = Mapping[str, pl.LazyFrame]


@dataclass(frozen=True)
class Feature:
    """A column on its way through the graph: how it is computed, and its schema.

    The schema's dtype and shape are those of the expression.
    """

    expression: Expression
    schema: ColumnSchema

    @classmethod
    def of(
        cls, name: str, expression: Expression, like: ColumnSchema | None = None, **changes: Any
    ) -> Feature:
        """A feature whose dtype and shape are the expression's; the rest is as tags.py says.

        Args:
            name: the feature's name.
            expression: how it is computed.
            like: a column whose tags, and properties but for facts about values, it inherits.
            changes: `tags` to add, `properties` to set.
        """
        type_ = expression.type
        tags = add_tags(like.tags if like else (), changes.get("tags", ()))
        properties = properties_after(like, is_list=type_.is_list) if like else {}
        properties |= changes.get("properties", {})
        return cls(
            expression,
            ColumnSchema(name, type_.dtype, type_.is_list, type_.nullable, tags, properties),
        )


Features = dict[str, Feature]


@dataclass(frozen=True)
class Example:
    """An operator at work, from which the conformance suite makes its tests.

    Attributes:
        operator: as a user would write it.
        columns: its input columns, as `polars.DataFrame` takes them, to fit to and to transform.
        unseen: further rows that are transformed and not fitted to.
        left: what stands left of `>>`, where that is not all columns: names and groups.
    """

    operator: Operator
    columns: Mapping[str, Any]
    unseen: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left: Sequence[Any] | None = None


Groups = tuple[tuple[str, ...], ...]


class Selectable:
    """What stands for columns in an operator's setting beside their names: a node of the graph."""


@dataclass(frozen=True)
class Inputs:
    """What the graph tells an operator of the columns that it is given.

    Attributes:
        groups: the columns on the left of `>>` as they are grouped there, one outside of any
            group as a group of its own: `[["a", "b"], "c"]` is `(("a", "b"), ("c",))`.
        dependencies: the names of the columns that the operator's setting `depends_on` stands for.
    """

    groups: Groups = ()
    dependencies: tuple[str, ...] = ()


NOT_SAVED = {"saved": False}

OPERATORS: dict[str, type[Operator]] = {}


class OperatorMeta(ABCMeta):
    """Lets a class stand where its instance with default settings can: `["a"] >> ops.Categorify`."""

    def __rrshift__(cls, left: Any) -> OperatorNode:
        from .graph import as_node  # noqa: PLC0415 - a graph is made of operators
        from .operator_node import OperatorNode  # noqa: PLC0415

        return OperatorNode(as_node(left), cls)


@dataclass(frozen=True)
class Operator(ABC, metaclass=OperatorMeta):
    """A step of a workflow. A new operator is a frozen dataclass in one file of `workflow/ops/`.

    Its fields are its configuration, and are what a saved workflow holds of it: their
    annotations are what a file is held to. A field with `metadata=NOT_SAVED` comes from the state
    instead. An operator never changes: what it learns from data is a `State` that the workflow
    keeps.

    Four class attributes tell the graph what an operator is:

    - `learns`: it has a state, so it has `partial`, `merge` and `finish`.
    - `takes_groups`: it works on groups of columns, `[["a", "b"], "c"] >> Op()`. Each of its
      methods finds them by `self.groups(columns)`. Groups pass through the operators before it
      that do not take them, as long as the columns keep their names.
    - `depends_on`: the name of the field that holds further columns which it reads: names, or
      nodes of the graph. These are among the `columns` of every method, and
      `self.dependency_names()` has their names. In `lower` they may be missing when the operator
      learns: `remove_inputs` takes away a target that only learning needs.
    - `row_by_row`: what it makes of a row depends on this row alone, so that it can be served.
      Those that cannot be are a `FrameOperator` or a `WindowOperator` (frame_operator.py).

    The graph hands an operator its groups and dependencies by `bind`, which makes a copy.

    Example:
        >>> from workflow import ops
        >>> features = ["age"] >> ops.FillMissing(0) >> ops.Normalize()
    """

    learns: ClassVar[bool] = False
    takes_groups: ClassVar[bool] = False
    depends_on: ClassVar[str | None] = None
    row_by_row: ClassVar[bool] = True

    inputs: Inputs = dataclasses.field(
        default=Inputs(), init=False, repr=False, compare=False, metadata=NOT_SAVED
    )

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract:
            OPERATORS[cls.__name__] = cls

    def bind(self, inputs: Inputs) -> Self:
        """The operator at its place in a graph."""
        bound = copy.copy(self)
        object.__setattr__(bound, "inputs", inputs)
        return bound

    def groups(self, columns: Iterable[str]) -> Groups:
        """The groups to work on; outside of a graph each column is one, dependencies aside."""
        others = self.dependency_names()
        return self.inputs.groups or tuple((name,) for name in columns if name not in others)

    def own_columns(self, columns: Iterable[str]) -> list[str]:
        """The columns on the left of `>>`, without those that are dependencies only."""
        return list(dict.fromkeys(name for group in self.groups(columns) for name in group))

    def dependency_names(self) -> tuple[str, ...]:
        """The names of the columns that `depends_on` stands for."""
        if self.inputs.dependencies or self.depends_on is None:
            return self.inputs.dependencies
        given = getattr(self, self.depends_on)
        named = [given] if isinstance(given, str) else given
        names = named if isinstance(named, list | tuple) else []
        return tuple(name for name in names if isinstance(name, str))

    @abstractmethod
    def lower(self, columns: Features, state: State) -> Features:
        """The output columns, as expressions over the input columns.

        Args:
            columns: the input columns, in order.
            state: what `finish` returned; empty for an operator that does not learn.
        """

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """What is to be learnt from a part of the data: small tables, as lazy queries.

        Args:
            frame: the operator's input columns, in some part of the rows.
            columns: their schema.
        """
        raise NotImplementedError

    def merge(self, partials: Partials, columns: Schema) -> Partials:
        """The tables of several parts, one above the other, as if `partial` had seen them as one."""
        raise NotImplementedError

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """What `lower` needs, from the tables of the whole data."""
        raise NotImplementedError

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> State | None:
        """What remains of a state when only some of its input columns do: for `remove_inputs`.

        A state with one entry for each input column, by its name, or with one number for each in
        their order, needs no method of its own. What is returned is tried, not trusted: an
        operator goes on only where it then makes what it made before.

        Args:
            state: what `finish` returned.
            columns: the input columns that it was learnt from.
            names: those of them that remain.

        Returns:
            the state of these columns, or None where the operator must keep all.
        """
        left = set(names)
        if state.keys() == set(columns):
            return {name: state[name] for name in columns if name in left}
        if any(c.is_list or c.rows != len(columns) for c in state.values()):
            return None
        rows = [number for number, name in enumerate(columns) if name in left]
        return {key: _rows(column, rows) for key, column in state.items()}

    @classmethod
    def examples(cls) -> list[Example]:
        """The operator at work; without examples the conformance suite fails."""
        return []

    @classmethod
    def saved_fields(cls) -> list[str]:
        """The names of the fields that a saved workflow holds."""
        return [f.name for f in dataclasses.fields(cls) if f.metadata.get("saved", True)]

    def to_config(self, columns: Features) -> dict[str, Any]:  # noqa: ARG002 - LambdaOp traces over them
        """The configuration as JSON-able values."""
        config = {name: getattr(self, name) for name in self.saved_fields()}
        if self.depends_on is not None and config[self.depends_on] is not None:
            config[self.depends_on] = list(self.dependency_names())
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> Operator:  # noqa: ARG003 - JoinExternal's table
        """The operator that `to_config` described."""
        return cls(**config)

    def __rrshift__(self, left: Node | str | Iterable[Any]) -> OperatorNode:
        from .graph import as_node  # noqa: PLC0415 - a graph is made of operators
        from .operator_node import OperatorNode  # noqa: PLC0415

        return OperatorNode(as_node(left), self)

    @property
    def label(self) -> str:
        """The operator's name, for messages and pictures."""
        return type(self).__name__


def _rows(column: Column, rows: Sequence[int]) -> Column:
    return Column(column.array[rows], None if column.valid is None else column.valid[rows])


def require(condition: bool, message: str) -> None:
    """Raise a `WorkflowError` unless the condition holds."""
    if not condition:
        raise WorkflowError(message)


def per_column(value: Any, name: str, default: Any) -> Any:
    """A setting that is one value for all columns or a mapping from column to value."""
    return value.get(name, default) if isinstance(value, Mapping) else value


def expect_known(setting: str, value: Any, columns: Collection[str]) -> None:
    """Refuse a setting for a column that the operator does not have: it would do nothing.

    Raises:
        WorkflowError: names the columns that are unknown.
    """
    unknown = [name for name in value if name not in columns] if isinstance(value, Mapping) else []
    require(
        not unknown,
        f"{setting} is set for {', '.join(map(repr, unknown))}. The columns are: {', '.join(columns)}.",
    )


def expect_state(state: State, names: Iterable[str]) -> None:
    """Hold a state to what an operator has learnt under these names and nothing else.

    Raises:
        WorkflowError: the state belongs to other columns, or to another operator.
    """
    wanted = list(names)
    require(
        state.keys() == set(wanted),
        f"Expected state for {', '.join(wanted)}. Received: {', '.join(state) or 'none'}.",
    )
