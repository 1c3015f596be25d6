"""Operators: a configuration, the state that it learns from data, and the expressions it lowers to."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import polars as pl

from workflow.schema.column import Column
from workflow.schema.schema import Schema
from workflow.schema.training_data import Coverage

from .feature import Features, Groups, Inputs, Keyed, OfRows, Partials, Selectable, State
from .settings import settle

if TYPE_CHECKING:
    from workflow.graph.operator_node import OperatorNode


@dataclass(frozen=True)
class Example:
    """An example of an operator, from which the conformance suite makes its tests.

    Attributes:
        operator: as a user would write it.
        columns: its input columns, as for `polars.DataFrame`, to fit to and to transform.
        unseen: further rows that are only transformed.
        left: the left operand of `>>`, if that is not all columns: names and groups.
    """

    operator: Operator
    columns: Mapping[str, Any]
    unseen: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left: Sequence[Any] | None = None


NOT_SAVED = {"saved": False}

OPERATORS: dict[str, type[Operator]] = {}


class OperatorMeta(ABCMeta):
    """Metaclass that lets a class stand for its instance with defaults: `["a"] >> ops.Categorify`."""

    # `left >> operator` makes a node of the graph; graph/operator_node.py sets it, to avoid a
    # cycle.
    node_of: ClassVar[Callable[[Any, Any], OperatorNode]]

    def __rrshift__(cls, left: Any) -> OperatorNode:
        return OperatorMeta.node_of(left, cls)

    def __dir__(cls) -> list[str]:
        """The settings, and no methods of the graph: `help(ops.Clip)` and completion show these."""
        settings = cast("type[Operator]", cls).settings() if dataclasses.is_dataclass(cls) else []
        return [*settings, "__doc__", "__module__"]


@dataclass(frozen=True)
class Operator(ABC, metaclass=OperatorMeta):
    """A step of a workflow. A new operator is a frozen dataclass in one file of `workflow/ops/`.

    Its fields are its configuration, which a saved workflow stores; their annotations validate
    values from users and files (settings.py). A field with `metadata=NOT_SAVED` comes from the
    state instead. An operator never changes: what it learns from data is a `State` that the
    workflow keeps.

    Class attributes tell the graph about an operator:

    - `learns`: it has a state, and so `partial`, `merge` and `finish`.
    - `takes_groups`: it works on groups of columns, as in `[["a", "b"], "c"] >> Op()`, which its
    methods get from `self.groups(columns)`. Groups pass through earlier operators that do not take
    them, as long as the columns keep their names.
    - `takes_ids`: its own columns (or only those that `id_columns` names) must not contain fractions.
    Pandas converts integers beside a missing value to floats; `fit` converts such a column of the
    data back to integers.
    - `depends_on`: the name of the field that names further columns to read, or holds nodes of the
    graph that make them. They are among the `columns` of every method, and `self.dependency_names()`
    has their names. If the operator learns, `lower` may not get them, since `remove_inputs` removes
    a target that only learning needs.
    - `completed_by`: the fields that name columns which are taken from the data if they are not left
    of `>>`. Such columns are among the `columns` of every method, but not among
    `self.own_columns(columns)`.
    - `has_vocabularies`: its output columns are ids of a vocabulary, and their property `domain` has
    the vocabulary's `name`, which columns of one vocabulary share. The graph appends a number if
    another operator has used the name for its own vocabulary.
    - `row_by_row`: its result for a row depends on this row alone, so that it can be served. Other
    operators derive from `FrameOperator` or `WindowOperator` (frame_operator.py).

    The graph passes groups and dependencies to an operator by `bind`, which makes a copy.

    Example:
        >>> from workflow import ops
        >>> features = ["age"] >> ops.FillMissing(0) >> ops.Normalize()
    """

    learns: ClassVar[bool] = False
    takes_groups: ClassVar[bool] = False
    takes_ids: ClassVar[bool] = False
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
        """Refuse settings that have the right type but an invalid value; subclasses override it.

        Values are already converted by settings.py: numpy's scalars and arrays are Python objects.

        Raises:
            WorkflowError: names the setting, and its value.
        """

    def bind(self, inputs: Inputs) -> Self:
        """A copy of the operator for its place in a graph."""
        bound = copy.copy(self)
        object.__setattr__(bound, "inputs", inputs)
        return bound

    def groups(self, columns: Iterable[str]) -> Groups:
        """The groups to work on; outside a graph each column is a group, dependencies excluded."""
        dependencies = self.dependency_names()
        return self.inputs.groups or tuple((name,) for name in columns if name not in dependencies)

    def own_columns(self, columns: Iterable[str]) -> list[str]:
        """The columns on the left of `>>`, without those that are only dependencies."""
        return list(dict.fromkeys(name for group in self.groups(columns) for name in group))

    def id_columns(self, columns: Iterable[str]) -> list[str]:
        """The columns that must not contain fractions."""
        return self.own_columns(columns) if self.takes_ids else []

    def dependency_names(self) -> tuple[str, ...]:
        """The names of the columns that `depends_on` stands for."""
        if self.inputs.dependencies or self.depends_on is None:
            return self.inputs.dependencies
        setting = getattr(self, self.depends_on)
        named = [setting] if isinstance(setting, str) else setting
        names = named if isinstance(named, list | tuple) else []
        return tuple(name for name in names if isinstance(name, str))

    @abstractmethod
    def lower(self, columns: Features, state: State) -> Features:
        """The output columns, as expressions over the input columns.

        Args:
            columns: the input columns, in order.
            state: the result of `finish`; empty for an operator that does not learn.
        """

    def learns_from(self, columns: Features) -> Features:
        """The columns for `partial`: the input columns, or columns computed from them row by row."""
        return columns

    def groups_on_host(self, columns: Schema) -> bool:  # noqa: ARG002
        """Whether the CPU counts or groups rows that the GPU has computed.

        True for a variance, which cuDF computes from a sum of squares and so loses all digits if the
        values are far from 0. True for lists whose nulls count, since cuDF turns an empty list into
        null. True for operators whose counting is not a single Polars query.
        """
        return False

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """The small tables that are learnt from a part of the data, as lazy queries.

        Args:
            frame: the columns of `learns_from`, for some of the rows.
            columns: their schema.
        """
        raise NotImplementedError

    def tables_of_rows(
        self,
        frame: pl.LazyFrame,  # noqa: ARG002
        columns: Schema,  # noqa: ARG002
    ) -> Mapping[str, OfRows]:
        """The tables of `partial` that functions make from rows in memory, in the order of the rows.

        On a CPU they replace the queries where a function is faster, and for sums of floats, which Polars
        adds in an order that depends on its threads.

        Args:
            frame: as in `partial`.
            columns: as in `partial`.

        Returns:
            For each table a query of a few columns, and the function.
        """
        return {}

    def merge(self, partials: Partials, columns: Schema) -> Partials:
        """Combine the concatenated tables of several parts, as if `partial` had seen one part.

        Not called if `partial` returns no table. On a cluster it may get only some of the tables.
        """
        raise NotImplementedError

    def keyed_tables(self, columns: Schema) -> Mapping[str, Keyed]:  # noqa: ARG002
        """The tables of `partial` with a row for each key, which a cluster merges in parts.

        Args:
            columns: the input columns.
        """
        return {}

    def condense(
        self,
        partials: Mapping[str, pl.DataFrame],
        columns: Schema,  # noqa: ARG002
    ) -> Mapping[str, pl.DataFrame]:
        """Tables of the whole data, without the rows that `finish` and `coverages` do not need.

        A cluster's workers call it for each part of the keys, so that the other rows never leave
        them; the tables of the parts are then concatenated.

        Args:
            partials: some of the tables, or of the keys of keyed tables a part.
            columns: the input columns.
        """
        return partials

    def counted_lists(self, columns: Schema) -> Mapping[str, tuple[str, str]]:  # noqa: ARG002
        """The list columns whose elements `partial` counts, without learning anything else from them.

        While an operator learns, such a column may be int64: the positions of its rows' lists in a
        joined table, which are fewer than their elements. `merge` then sums the counts of an
        element over its positions.

        Returns:
            For each column the name of the table, and of the table's column of elements.
        """
        return {}

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """State that `lower` needs, from the tables of the whole data."""
        raise NotImplementedError

    def coverages(
        self,
        partials: Mapping[str, pl.DataFrame],  # noqa: ARG002
        columns: Schema,  # noqa: ARG002
    ) -> Mapping[str, Coverage]:
        """The coverage of the columns by the operator's vocabularies, by the column's name.

        Args:
            partials: the tables of the whole data, as `finish` gets them.
            columns: the input columns.
        """
        return {}

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> Iterator[State]:
        """Candidates for the part of a state for the remaining input columns, for `remove_inputs`.

        No override is needed for a state with one entry for each input column, by name, or with one
        number for each in their order. Each candidate is verified: an operator stays only if its
        output is unchanged.

        Args:
            state: the result of `finish`.
            columns: the input columns that it was learnt from.
            names: the remaining ones.

        Returns:
            States of these columns; none if the operator needs all columns.
        """
        rest = set(names)
        if state.keys() == set(columns):
            yield {name: state[name] for name in columns if name in rest}
        # Both may be so: columns can have the names of the entries, such as "mean" and "std".
        if all(not c.is_list and c.rows == len(columns) for c in state.values()):
            rows = [number for number, name in enumerate(columns) if name in rest]
            yield {key: _rows(column, rows) for key, column in state.items()}

    @classmethod
    def examples(cls) -> list[Example]:
        """Examples of the operator; without any the conformance suite fails."""
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
        """The operator described by a result of `to_config`."""
        return cls(**config)

    def __rrshift__(self, left: Selectable | str | Iterable[Any]) -> OperatorNode:
        return OperatorMeta.node_of(left, self)

    @property
    def label(self) -> str:
        """The operator's name, for messages and pictures."""
        return type(self).__name__


def _rows(column: Column, rows: Sequence[int]) -> Column:
    return Column(column.array[rows], None if column.valid is None else column.valid[rows])
