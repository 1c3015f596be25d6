"""DifferenceLag: the difference between a value and that of an earlier row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from workflow.graph.selection import one_or_several
from workflow.operator.checks import require
from workflow.operator.feature import Selectable
from workflow.operator.frame_operator import WindowOperator
from workflow.operator.operator import Example
from workflow.schema.schema import Schema, Tags
from workflow.schema.tags import add_tags, computed_of


@dataclass(frozen=True)
class DifferenceLag(WindowOperator):
    """Subtract the value some rows before, among the rows of the same partition.

    Makes `<column>_difference_lag_<shift>`, float32, computed in float64; the columns stand beside
    all others of the same rows. Rows are counted in the order of the data, across all of its files:
    sort by time first. The result is null if a partition has no such row, if either value is null,
    or if both are the same infinity. Takes numbers and booleans.

    A server does not have other rows, so columns derived from this cannot be exported.

    Args:
        partition_cols: compares rows that are equal in these columns: names, or a node. Nulls are
            equal to each other.
        shift: the number of rows before; a negative number looks ahead. One or several.

    Example:
        >>> waited = ["timestamp"] >> DifferenceLag("userId", shift=[1, -1])
    """

    partition_cols: str | Sequence[str | Selectable] | Selectable
    shift: int | Sequence[int] = 1

    depends_on: ClassVar[str | None] = "partition_cols"

    def _check_settings(self) -> None:
        shifts = one_or_several(self.shift)
        require(
            bool(shifts) and all(shifts) and len(set(shifts)) == len(shifts),
            f"DifferenceLag needs shift as distinct whole numbers other than 0. Received: {self.shift!r}.",
        )
        object.__setattr__(self, "shift", shifts)

    @classmethod
    def examples(cls) -> list[Example]:
        """Back and ahead, by one and by two keys with nulls."""
        rows = {
            "user": [7, 9, 7, None, 7, None, 9],
            "city": ["a", "a", "a", "b", None, "b", None],
            "time": [10, 20, 25, 2**60, 24, 2**60 + 3, 50],
            "price": [1.5, None, float("nan"), 0.5, float("inf"), 2.0, 1.0],
        }
        both = ["time", "price"]
        return [
            Example(cls("user"), rows, left=both),
            Example(cls(["user", "city"], shift=[1, -1, 2]), rows, left=both),
        ]

    def frame_schema(self, columns: Schema) -> Schema:
        """The differences, for each column and shift."""
        require(
            bool(self.dependency_names()),
            f"DifferenceLag needs partition_cols. Received: {self.partition_cols!r}.",
        )
        for name in self.dependency_names():
            require(
                not columns[name].is_list,
                f"Lists cannot be partition keys. Received: column {columns[name]!r}.",
            )
        for name in self.own_columns(columns):
            column = columns[name]
            require(
                column.info.kind != "string" and not column.is_list,
                f"DifferenceLag needs numbers. Received: column {name!r}, {column}.",
            )
        return Schema(
            like.with_(name=output, dtype="float32", tags=add_tags(like.tags, (Tags.CONTINUOUS,)))
            for output, like in ((m, computed_of(columns[n])) for m, n, _ in self._made(columns))
        )

    def window(self, columns: Schema, values: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The differences over the whole data."""
        keys = [values[name] for name in self.dependency_names()]
        differences = {}
        for output, name, shift in self._made(columns):
            value = values[name]
            before = value.shift(shift).over(keys)
            difference = value.cast(pl.Float64) - before.cast(pl.Float64)
            if columns[name].dtype in ("int64", "uint64"):
                difference = _exact(columns[name].dtype, value, before, difference)
            differences[output] = difference.cast(pl.Float32)
        return differences

    def _made(self, columns: Schema) -> list[tuple[str, str, int]]:
        shifts = [self.shift] if isinstance(self.shift, int) else self.shift
        return [
            (f"{n}_difference_lag_{k}", n, k) for n in self.own_columns(columns) for k in shifts
        ]


def _exact(dtype: str, value: pl.Expr, before: pl.Expr, difference: pl.Expr) -> pl.Expr:
    """The difference of two large integers, exact if they are near each other.

    Where the 64-bit difference would overflow, it is computed in floats.
    """
    a, b = (e.reinterpret(signed=True) if dtype == "uint64" else e for e in (value, before))
    return pl.when(difference.abs() < 2.0**62).then((a - b).cast(pl.Float64)).otherwise(difference)
