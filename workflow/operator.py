"""What an operator is: a configuration, what it learns from data, and what it lowers to."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from .errors import WorkflowError
from .expressions.column import Column
from .expressions.tree import Expression
from .schema import ColumnSchema, Schema

if TYPE_CHECKING:
    from .graph import Node, OperatorNode

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
        """A feature whose dtype and shape are the expression's; tags come from another column.

        Args:
            name: the feature's name.
            expression: how it is computed.
            like: a column whose tags it inherits.
            changes: `tags` to add, `properties` to set.
        """
        tags = (like.tags if like else ()) + tuple(changes.get("tags", ()))
        type_ = expression.type
        properties = changes.get("properties", {})
        return cls(
            expression,
            ColumnSchema(name, type_.dtype, type_.is_list, type_.nullable, tags, properties),
        )


Features = dict[str, Feature]

OPERATORS: dict[str, type[Operator]] = {}


@dataclass(frozen=True)
class Operator(ABC):
    """A step of a workflow. A new operator is a frozen dataclass in one file of `workflow/ops/`.

    Its fields are its configuration, and are what a saved workflow holds of it. An operator
    never changes: what it learns from data is a `State` that the workflow keeps.

    Example:
        >>> from workflow import ops
        >>> features = ["age"] >> ops.FillMissing(0) >> ops.Normalize()
    """

    learns: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        OPERATORS[cls.__name__] = cls

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

    def to_config(self, columns: Features) -> dict[str, Any]:  # noqa: ARG002 - LambdaOp traces over them
        """The configuration as JSON-able values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> Operator:  # noqa: ARG003 - JoinExternal's table
        """The operator that `to_config` described."""
        return cls(**config)

    def __rrshift__(self, left: Node | str | Iterable[Any]) -> OperatorNode:
        from .graph import OperatorNode, as_node  # noqa: PLC0415 - a graph is made of operators

        return OperatorNode(as_node(left), self)

    @property
    def label(self) -> str:
        """The operator's name, for messages and pictures."""
        return type(self).__name__


def require(condition: bool, message: str) -> None:
    """Raise a `WorkflowError` unless the condition holds."""
    if not condition:
        raise WorkflowError(message)


def per_column(value: Any, name: str, default: Any) -> Any:
    """A setting that is one value for all columns or a mapping from column to value."""
    return value.get(name, default) if isinstance(value, Mapping) else value
