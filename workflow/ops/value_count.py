"""ValueCount: the numbers of elements in the rows of a list column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.operator.checks import expect_state, require
from workflow.operator.feature import Feature, Features, Partials, State
from workflow.operator.operator import Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import Schema

from ._numbers import ends, merged_ends


@dataclass(frozen=True)
class ValueCount(Operator):
    """Learn the shortest and the longest row of each list column; values pass through.

    Sets the property `value_count`, {"min", "max"}; if both are equal, every row in `fit` had that
    many elements. Empty and null rows have none. A later, longer row passes through unchanged; use
    ListSlice to cut it.

    Example:
        >>> history = ["clicked"] >> ValueCount()
    """

    learns: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Rows of one length and of several, empty and null."""
        return [
            Example(
                cls(), {"genres": [["x"], [], None, ["y", None, "z"]], "none": [[1], [], [], []]}
            ),
            Example(cls(), {"pair": [[1.0, 2.0], [None, 4.0]]}, {"pair": [[1.0, 2.0, 3.0]]}),
        ]

    def learns_from(self, columns: Features) -> Features:
        """The lengths of the rows."""
        for name, feature in columns.items():
            require(
                feature.schema.is_list,
                f"ValueCount needs lists. Received: column {name!r}, {feature.schema}.",
            )
        return {name: Feature.of(name, f.expression.list_length()) for name, f in columns.items()}

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """The shortest and the longest row of each column."""
        return {name: ends(frame, name) for name in columns}

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The shortest and the longest row of all parts."""
        return merged_ends(partials)

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """Both lengths of each column."""
        return {
            name: Column(np.array([n or 0 for n in partials[name].row(0)], np.int64))
            for name in columns
        }

    def lower(self, columns: Features, state: State) -> Features:
        """The columns, with their property."""
        expect_state(state, columns)
        outputs: Features = {}
        for name, feature in columns.items():
            counts = state[name]
            require(
                counts.valid is None and counts.array.dtype == np.int64 and counts.rows == 2,
                f"Expected two lengths for column {name!r}.",
            )
            shortest, longest = counts.array.tolist()
            count = {"value_count": {"min": shortest, "max": longest}}
            properties = {**feature.schema.properties, **count}
            outputs[name] = Feature(feature.expression, feature.schema.with_(properties=properties))
        return outputs
