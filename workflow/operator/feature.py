"""Columns on their way through a graph: expressions, schemas and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema
from workflow.schema.tags import add_tags, properties_after


@dataclass(frozen=True)
class Feature:
    """A column on its way through the graph: its expression and its schema.

    The schema has the expression's dtype and shape.
    """

    expression: Expression
    schema: ColumnSchema

    @classmethod
    def of(
        cls, name: str, expression: Expression, like: ColumnSchema | None = None, **changes: Any
    ) -> Feature:
        """A feature with the expression's dtype and shape; other attributes as schema/tags.py says.

        Args:
            name: the feature's name.
            expression: its expression.
            like: a column whose tags it inherits, and whose properties except for facts about
                values.
            changes: `tags` to add, `properties` to set, and `time` if the values are times.
        """
        type_ = expression.type
        tags = add_tags(like.tags if like else (), changes.get("tags", ()))
        properties = properties_after(like, is_list=type_.is_list) if like else {}
        properties |= changes.get("properties", {})
        return cls(
            expression,
            ColumnSchema(
                name,
                type_.dtype,
                type_.is_list,
                type_.nullable,
                tags,
                properties,
                changes.get("time", ""),
            ),
        )


Features = dict[str, Feature]

# What an operator has learnt, from all data or from a part of it.
State = Mapping[str, Column]
Partials = Mapping[str, pl.LazyFrame]
# A query of some columns, and a function from their rows to a table of what is learnt from them.
OfRows = tuple[pl.LazyFrame, Callable[[pl.DataFrame], pl.DataFrame]]

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Keyed:
    """A table with a row for each key, whose rows merge with rows of the same key alone.

    Attributes:
        keys: the names of the key columns.
        parts: the least number of parts into which a cluster divides it by a hash of the key.
    """

    keys: tuple[str, ...]
    parts: int = 1


class Selectable:
    """Stand-in for columns in an operator's setting, beside their names: a node of the graph."""


@dataclass(frozen=True)
class Inputs:
    """Facts that the graph tells an operator about its columns.

    Attributes:
        groups: the groups of the columns on the left of `>>`; a column outside any group is its own
            group: `[["a", "b"], "c"]` is `(("a", "b"), ("c",))`.
        dependencies: the names of the columns that the operator's setting `depends_on` stands for.
    """

    groups: Groups = ()
    dependencies: tuple[str, ...] = ()
