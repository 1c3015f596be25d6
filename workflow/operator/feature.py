"""Columns on their way through a graph: how they are computed, and how they stand together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema
from workflow.schema.tags import add_tags, properties_after


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
        """A feature whose dtype and shape are the expression's; the rest is as schema/tags.py says.

        Args:
            name: the feature's name.
            expression: how it is computed.
            like: a column whose tags, and properties but for facts about values, it inherits.
            changes: `tags` to add, `properties` to set, and `time` where the values are times.
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

# What an operator has learnt, and what it learns of a part of the data.
State = Mapping[str, Column]
Partials = Mapping[str, pl.LazyFrame]

Groups = tuple[tuple[str, ...], ...]


class Selectable:
    """Stand-in for columns in an operator's setting beside their names: a node of the graph."""


@dataclass(frozen=True)
class Inputs:
    """Facts that the graph tells an operator about its columns.

    Attributes:
        groups: the columns on the left of `>>` as they are grouped there, one outside of any
            group as a group of its own: `[["a", "b"], "c"]` is `(("a", "b"), ("c",))`.
        dependencies: the names of the columns that the operator's setting `depends_on` stands for.
    """

    groups: Groups = ()
    dependencies: tuple[str, ...] = ()
