"""Operators: a configuration, what it learns from data, and what it lowers to."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import polars as pl

from workflow.schema.column import Column
from workflow.schema.schema import Schema

from .feature import Features, Groups, Inputs, Partials, Selectable, State
from .settings import settle

if TYPE_CHECKING:
    from workflow.graph.operator_node import OperatorNode


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


NOT_SAVED = {"saved": False}

OPERATORS: dict[str, type[Operator]] = {}


class OperatorMeta(ABCMeta):
    """Lets a class stand where its instance with default settings can: `["a"] >> ops.Categorify`."""

    # `left >> operator` is a node of the graph, which is made of operators: graph/operator_node.py sets it.
    node_of: ClassVar[Callable[[Any, Any], OperatorNode]]

    def __rrshift__(cls, left: Any) -> OperatorNode:
        return OperatorMeta.node_of(left, cls)


@dataclass(frozen=True)
class Operator(ABC, metaclass=OperatorMeta):
    """A step of a workflow. A new operator is a frozen dataclass in one file of `workflow/ops/`.

    Its fields are its configuration, and are what a saved workflow holds of it: their annotations
    are what a user and a file are held to (settings.py). A field with `metadata=NOT_SAVED` comes
    from the state instead. An operator never changes: what it learns from data is a `State` that
    the workflow keeps.

    Five class attributes tell the graph what an operator is:

    - `learns`: it has a state, so it has `partial`, `merge` and `finish`.
    - `takes_groups`: it works on groups of columns, `[["a", "b"], "c"] >> Op()`. Each of its
      methods finds them by `self.groups(columns)`. Groups pass through the operators before it
      that do not take them, as long as the columns keep their names.
    - `depends_on`: the name of the field that holds further columns which it reads: names, or
      nodes of the graph. These are among the `columns` of every method, and
      `self.dependency_names()` has their names. In `lower` they may be missing when the operator
      learns: `remove_inputs` takes away a target that only learning needs.
    - `completed_by`: the names of the fields that hold names of columns which it takes from the data
      where they are not left of `>>`. Those of the data are among the `columns` of every method, and
      not among `self.own_columns(columns)`.
    - `has_vocabularies`: its columns are ids of values that it knows, and their property `domain`
      has a `name`: the same for columns of one vocabulary. The graph adds a number to it where
      another operator has given the name to a vocabulary of its own.
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
    completed_by: ClassVar[tuple[str, ...]] = ()
    has_vocabularies: ClassVar[bool] = False
    row_by_row: ClassVar[bool] = True

    inputs: Inputs = dataclasses.field(
        default=Inputs(), init=False, repr=False, compare=False, metadata=NOT_SAVED
    )

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract:
            OPERATORS[cls.__name__] = cls

    def __post_init__(self) -> None:
        settle(self)
        self._check_settings()

    def _check_settings(self) -> None:
        """Refuse settings that are of the right type and make no sense; for a subclass to say.

        Here they are as settings.py keeps them: numpy's scalars and arrays are Python's own.

        Raises:
            WorkflowError: names the setting, and what it was given.
        """

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

    def learns_from(self, columns: Features) -> Features:
        """Columns that `partial` is given: the input columns, or what is computed from them row by row."""
        return columns

    def needs_integers(self, columns: Schema) -> Iterable[str]:  # noqa: ARG002
        """The input columns that may hold no fractions, as ids do.

        Pandas makes floats of integers beside a missing one. Where such a column comes from the data
        as it is, `fit` takes it for the integers that it was.
        """
        return ()

    def groups_on_host(self, columns: Schema) -> bool:  # noqa: ARG002
        """Whether the CPU counts or groups rows that the GPU has computed.

        For a variance: cuDF takes it from a sum of squares, which leaves no digit of it where the
        values lie far from 0. For lists with nulls that count: cuDF makes a null of an empty list.
        And for what is more than a query.
        """
        return False

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """Tables to learn from a part of the data: small ones, as lazy queries.

        Args:
            frame: what `learns_from` says of the operator's input columns, in some of the rows.
            columns: their schema.
        """
        raise NotImplementedError

    def merge(self, partials: Partials, columns: Schema) -> Partials:
        """The tables of several parts, one above the other, as if `partial` had seen them as one."""
        raise NotImplementedError

    def counted_lists(self, columns: Schema) -> Mapping[str, tuple[str, str]]:  # noqa: ARG002
        """The list columns of which `partial` counts the elements, and learns nothing else.

        While an operator learns, such a column may be int64: the positions of its rows' lists in a
        joined table, which are fewer than their elements. `merge` then adds up what was counted of
        an element at several positions.

        Returns:
            for each column the name of the table, and in it that of the elements.
        """
        return {}

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """State that `lower` needs, from the tables of the whole data."""
        raise NotImplementedError

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> State | None:
        """Rest of a state when only some of its input columns remain: for `remove_inputs`.

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
    def settings(cls) -> list[str]:
        """The names of the fields that its constructor takes."""
        return [f.name for f in dataclasses.fields(cls) if f.init]

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

    def __rrshift__(self, left: Selectable | str | Iterable[Any]) -> OperatorNode:
        return OperatorMeta.node_of(left, self)

    @property
    def label(self) -> str:
        """The operator's name, for messages and pictures."""
        return type(self).__name__


def _rows(column: Column, rows: Sequence[int]) -> Column:
    return Column(column.array[rows], None if column.valid is None else column.valid[rows])
