"""ListSlice: some elements of each list, and lists of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.schema import Tags
from workflow.schema.tags import FACTS, facts_of

from ._filling import facts_with

_BEYOND = 2**31


@dataclass(frozen=True)
class ListSlice(Operator):
    """Take a part of each list, like Python's `row[start:end]`.

    With one positive number it takes the first elements, `ListSlice(5)`; with one negative number
    the last elements, `ListSlice(-5)`.

    With `pad=True` every list has the same length, that of the slice: a shorter one is padded at
    its end. The schema then contains that length (the property `value_count`), and the model is
    served with an input of fixed shape. Null elements stay null; a null list is an empty list. Ids
    stay ids, with their `cardinality`, unless the padding is not an id.

    Args:
        start: the first position, negative from the end; for a call without `end` see above.
        end: the position after the last, negative from the end.
        pad: pad lists to the length of the slice.
        pad_value: the padding, a value of the column's dtype.

    Raises:
        WorkflowError: a column without lists, `pad=True` with a slice whose length does not follow
            from its bounds, or a `pad_value` that the column cannot hold.

    Example:
        >>> recent = ["clicks"] >> ListSlice(-20, pad=True)
    """

    start: int
    end: int | None = None
    pad: bool = False
    pad_value: bool | float | str = 0

    def _check_settings(self) -> None:
        bounds = [self.start] if self.end is None else [self.start, self.end]
        require(
            all(abs(bound) < _BEYOND for bound in bounds),
            f"ListSlice needs bounds between -{_BEYOND} and {_BEYOND}. "
            f"Received: start={self.start!r}, end={self.end!r}.",
        )
        require(
            not self.pad or bool(self._length),
            "ListSlice with pad=True needs a slice of a known length of 1 or more, such as (10), (-10), "
            f"(0, 10) or (-10, -1). Received: start={self.start}, end={self.end}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Slices from either end, with and without padding, of every kind of element."""
        clicks = {"clicks": [[0, 1, 2, 2, 767], [1, None, 3], [], None], "n": [[1.5], [], None, []]}
        texts = {
            "tags": [["x", None, "z"], [], None, ["日本"]],
            "flags": [[True], None, [], [None]],
        }
        small = {"small": pl.Series([[1, 2, 3], [], None], dtype=pl.List(pl.Int8))}
        return [
            Example(cls(5, pad=True), clicks),
            Example(cls(-2), clicks),
            Example(cls(1, -1), clicks),
            Example(cls(-3, -1, pad=True, pad_value=-1), small),
            Example(cls(-2, 2), clicks),
            Example(cls(2, pad=True, pad_value="?"), {"tags": texts["tags"]}),
            Example(cls(1, 3), texts),
            Example(cls(2, pad=True, pad_value=True), {"flags": texts["flags"]}),
        ]

    @property
    def _bounds(self) -> tuple[int, int | None]:
        """The bounds of a Python slice."""
        return (0, self.start) if self.end is None and self.start > 0 else (self.start, self.end)

    @property
    def _length(self) -> int | None:
        """The greatest number of elements in the slice, if the bounds determine it."""
        start, end = self._bounds
        if end is None:
            return -start or None
        return max(end - start, 0) if (start < 0) == (end < 0) else None

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The slices."""
        return {name: self._slice(name, feature) for name, feature in columns.items()}

    def _slice(self, name: str, feature: Feature) -> Feature:
        like = feature.schema
        require(like.is_list, f"ListSlice needs lists. Received: column {name!r}, {like}.")
        lists = feature.expression.list_slice(*self._bounds)
        facts = {key: value for key, value in like.properties.items() if key in FACTS}
        if self.pad:
            lists = self._padded(name, lists)
            facts = facts_with(like, self._filling(like.info.kind))
        facts |= self._lengths(facts_of(like))
        return Feature.of(name, lists, like, tags=(Tags.LIST,), properties=facts, time=like.time)

    def _padded(self, name: str, lists: Expression) -> Expression:
        padded_lists = lists.list_pad(self._length or 0, self._filling(lists.type.kind))
        require(
            padded_lists.type.dtype == lists.type.dtype,
            f"pad_value={self.pad_value!r} does not fit into column {name!r}, {lists.type}.",
        )
        return padded_lists

    def _filling(self, kind: str) -> Any:
        """The padding in the column's dtype: 0 is False for bool, and 2.0 may be 2."""
        value = self.pad_value
        if kind == "bool" and value in (0, 1):
            return bool(value)
        whole = isinstance(value, float) and value.is_integer()
        return int(value) if kind in ("int", "uint") and whole else value

    def _lengths(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """The number of elements in a row, if it is known."""
        if self.pad:
            return {"value_count": {"min": self._length, "max": self._length}}
        if self._length is not None:
            return {"value_count": {"min": 0, "max": self._length}}
        return (
            {"value_count": {**before["value_count"], "min": 0}} if "value_count" in before else {}
        )
