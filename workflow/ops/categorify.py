"""Categorify: values become ids, the frequent ones first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.series import to_column
from workflow.operator import (
    Example,
    Feature,
    Features,
    Operator,
    Partials,
    State,
    expect_known,
    expect_state,
    per_column,
    require,
)
from workflow.schema import ColumnSchema, Schema, Tags, dtype_of

PADDING, NULL, UNKNOWN, FIRST = 0, 1, 2, 3


@dataclass(frozen=True)
class Categorify(Operator):
    """Give each distinct value an id.

    Ids: 0 is padding, 1 null, 2 a value that is not in the vocabulary, and from 3 on the
    vocabulary by descending frequency, ties by value. An embedding of the column needs
    vocabulary size + 3 rows: the column's `cardinality` property.

    Args:
        freq_threshold: leave values out of the vocabulary that occur less often; one number or
            a mapping from column to number.
        max_size: the largest cardinality, the three reserved ids included; 0 is no limit. One
            number or a mapping.
        dtype: the ids' dtype, an integer type.

    Takes integers, booleans, strings, and lists of them. A null element of a list is 1; an
    empty or null list stays empty.

    Example:
        >>> ids = ["userId", "genres"] >> Categorify(freq_threshold=5)
    """

    freq_threshold: int | Mapping[str, int] = 0
    max_size: int | Mapping[str, int] = 0
    dtype: str = "int64"

    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(
            dtype_of(self.dtype).is_integer,
            f"Categorify makes integers. Received: dtype={self.dtype!r}.",
        )
        object.__setattr__(self, "dtype", dtype_of(self.dtype).name)
        for setting in ("freq_threshold", "max_size"):
            value = getattr(self, setting)
            numbers = value.values() if isinstance(value, Mapping) else [value]
            require(
                all(type(n) is int and n >= 0 for n in numbers),
                f"Categorify needs {setting} as whole numbers from 0. Received: {value!r}.",
            )
            require(
                setting != "max_size" or all(n == 0 or n > FIRST for n in numbers),
                f"max_size includes the {FIRST} reserved ids. Received: {value!r}.",
            )

    @classmethod
    def examples(cls) -> list[Example]:
        """Ids of every kind of column, with every setting."""
        ids = {"user": [7, 7, 7, None, -3, 2**60], "city": ["b", "a", "b", "", "é", None]}
        unseen = {"user": [8, -(2**63), 7, None], "city": ["zz", "B", "a", None]}
        genres = {
            "genres": [["x", "y"], [], None, ["x", None], ["z"]],
            "clicks": pl.Series([[1, 2], [2], [], None, [9, None]], dtype=pl.List(pl.UInt16)),
        }
        flags = {"flag": [True, None, True, False], "code": pl.Series([5, 5, 9, 1], dtype=pl.UInt8)}
        large = pl.Series([2**64 - 1, 0, 2**64 - 1, None], dtype=pl.UInt64)
        return [
            Example(cls(), ids, unseen),
            Example(cls(freq_threshold=2, dtype="int32"), ids, unseen),
            Example(cls(max_size={"user": 4}, freq_threshold={"city": 2}), ids, unseen),
            Example(cls(), genres, {"genres": [["q", None, "x"]], "clicks": [[77, 2]]}),
            Example(cls(dtype="int8"), flags, {"flag": [None], "code": [0]}),
            Example(cls(), {"large": large}, {"large": [2**63, 1]}),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """How often each value occurs."""
        expect_known("freq_threshold", self.freq_threshold, columns)
        expect_known("max_size", self.max_size, columns)
        for column in columns.columns:
            require(
                column.info.kind != "float",
                f"Categorify needs integers, booleans or strings. Received: column {column.name!r}, {column}. "
                "Cast whole numbers with LambdaOp(lambda c: c.cast('int64')), or use Bucketize first.",
            )
        return {column.name: _count(frame, column) for column in columns.columns}

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The counts of all parts together."""
        return {
            name: parts.group_by("value").agg(pl.col("count").sum())
            for name, parts in partials.items()
        }

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The vocabulary of each column."""
        return {
            name: to_column(self._vocabulary(name, partials[name]), compact_strings=True)
            for name in columns
        }

    def _vocabulary(self, name: str, counts: pl.DataFrame) -> pl.Series:
        least = per_column(self.freq_threshold, name, 0)
        kept = counts.filter(pl.col("count") >= least) if least else counts
        ordered = kept.sort("count", "value", descending=[True, False])["value"]
        limit = per_column(self.max_size, name, 0)
        return ordered.head(limit - FIRST) if limit else ordered

    def lower(self, columns: Features, state: State) -> Features:
        """The ids."""
        expect_state(state, columns)
        ids: Features = {}
        for name, feature in columns.items():
            found = feature.expression.lookup(state[name], first=FIRST, missing=UNKNOWN)
            size = state[name].rows + FIRST
            require(
                size - 1 <= np.iinfo(self.dtype).max,
                f"The ids of column {name!r} go up to {size - 1}, which {self.dtype} does not hold. "
                "Use a wider dtype, or limit the ids with max_size.",
            )
            ids[name] = Feature.of(
                name,
                found.fill_null(NULL).cast(self.dtype),
                feature.schema,
                tags=(Tags.CATEGORICAL,),
                properties={"cardinality": size, "domain": {"min": 0, "max": size - 1}},
            )
        return ids


def _count(frame: pl.LazyFrame, column: ColumnSchema) -> pl.LazyFrame:
    values = frame.select(value=pl.col(column.name))
    if column.is_list:
        values = values.explode("value", empty_as_null=False)
    return values.drop_nulls().group_by("value").agg(count=pl.len())
