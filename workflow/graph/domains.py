"""Names of domains: equal for columns whose ids share a vocabulary, and for no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workflow.operator.feature import Feature
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.tags import part_of

from .row_set import Resolved


class DomainNames:
    """Unique names for the vocabularies of a graph.

    A vocabulary is named after the columns that it was learnt from. If another vocabulary already
    has that name, learnt by a second Categorify or by the workflow that wrote the data, a number is
    appended.

    Args:
        inputs: the columns of the data, whose domains keep their names.

    Example:
        >>> from workflow import Workflow, ops
        >>> rare = ["city"] >> ops.Categorify(freq_threshold=2) >> ops.Rename(name="rare")
        >>> workflow = Workflow((["city"] >> ops.Categorify()) + rare).fit({"city": ["a", "b"]})
        >>> [column.properties["domain"]["name"] for column in workflow.output_schema.columns]
        ['city', 'city_2']
    """

    def __init__(self, inputs: Schema) -> None:
        self._taken = {name for c in inputs.columns if (name := _name(c)) is not None}

    def given(self, made: Resolved) -> Resolved:
        """The columns of an operator with its own vocabularies, which get new names."""
        named = {_name(feature.schema) for feature in made.columns.values()}
        names = {name: self._free(name) for name in sorted(named - {None}, key=str)}
        columns = {key: _renamed(feature, names) for key, feature in made.columns.items()}
        return replace(made, columns=columns)

    def _free(self, name: Any) -> str:
        free, number = str(name), 2
        while free in self._taken:
            free, number = f"{name}_{number}", number + 1
        self._taken.add(free)
        return free


def _renamed(feature: Feature, names: Mapping[Any, str]) -> Feature:
    properties = feature.schema.properties
    if (name := _name(feature.schema)) is None:
        return feature
    domain = {**properties["domain"], "name": names[name]}
    schema = feature.schema.with_(properties={**properties, "domain": domain})
    return replace(feature, schema=schema)


def _name(column: ColumnSchema) -> Any:
    return part_of(column, "domain", "name")
