"""Facts about the raw columns that a workflow was fitted to, with which served ones are compared.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .dtypes import SchemaError

# The file of an exported step with these facts.
TRAINING_DATA = "training_data.json"
# An integer of JSON may be larger, of which no float is made.
_MOST = sys.float_info.max


@dataclass(frozen=True)
class Coverage:
    """The coverage of a column by a vocabulary.

    Attributes:
        size: the number of values with an id of their own.
        unknown: the share of further values of the same source that have none; None if values were
            not counted.
    """

    size: int
    unknown: float | None = None


@dataclass(frozen=True)
class TrainedColumn:
    """Facts about one column of the training data. For a list column, values are elements.

    Attributes:
        values: the number of values; of a list column without nulls.
        nulls: the number of values that are null or NaN; None for a list column, or if unknown.
        minimum: the least value; None for a column without a range, or without a lower end.
        maximum: the greatest value, or None.
        coverage: how Categorify's vocabulary covers the values; None without a vocabulary.
    """

    values: int
    nulls: int | None
    minimum: float | None = None
    maximum: float | None = None
    coverage: Coverage | None = None


@dataclass(frozen=True)
class TrainingData:
    """Facts about the columns of the training data, by name; empty if `fit` did not read it.

    Attributes:
        rows: the number of rows.
        columns: the columns.

    Example:
        >>> facts = TrainingData(4, {"age": TrainedColumn(4, 1, 7, 31)})
        >>> TrainingData.from_json(facts.to_json()) == facts
        True
    """

    rows: int = 0
    columns: Mapping[str, TrainedColumn] = field(default_factory=dict)

    def keep(self, names: Iterable[str]) -> TrainingData:
        """The facts about some of the columns."""
        kept = {name: self.columns[name] for name in names if name in self.columns}
        return TrainingData(self.rows, kept)

    def expectations(self, lists: Mapping[str, bool]) -> dict[tuple[str, str], float]:
        """The figures with which served columns are compared, by their kind and column.

        Args:
            lists: the served columns, and whether each holds whole lists: those that a client cuts
                have another mean length.

        Example:
            >>> TrainingData(4, {"age": TrainedColumn(4, 1, 7, 31)}).expectations({"age": False})
            {('nulls', 'age'): 0.25, ('minimum', 'age'): 7, ('maximum', 'age'): 31}
        """
        found: dict[tuple[str, str], float | None] = {}
        for name, is_list in lists.items():
            facts = self.columns.get(name)
            if facts is None or not self.rows:
                continue
            found["nulls", name] = None if facts.nulls is None else facts.nulls / self.rows
            found["unknown", name] = facts.coverage.unknown if facts.coverage else None
            found["length", name] = facts.values / self.rows if is_list else None
            found["minimum", name] = facts.minimum
            found["maximum", name] = facts.maximum
        return {key: value for key, value in found.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description."""
        return {"rows": self.rows, "columns": {n: asdict(c) for n, c in self.columns.items()}}

    @classmethod
    def from_json(cls, data: Any) -> TrainingData:
        """The facts described by a result of `to_json`.

        Raises:
            SchemaError: a key is missing, unknown or of the wrong type.
        """
        _expect_keys(data, ("rows", "columns"))
        if not isinstance(data["columns"], dict):
            raise SchemaError(f"Expected columns by name. Received: {data['columns']!r:.100}.")
        rows = _count(data["rows"])
        return cls(rows, {name: _column(name, one) for name, one in data["columns"].items()})


def _column(name: str, data: Any) -> TrainedColumn:
    try:
        _expect_keys(data, [one.name for one in fields(TrainedColumn)])
        limits = {key: _number(data[key]) for key in ("minimum", "maximum")}
        nulls = None if data["nulls"] is None else _count(data["nulls"])
        return TrainedColumn(
            _count(data["values"]), nulls, **limits, coverage=_coverage(data["coverage"])
        )
    except SchemaError as error:
        raise SchemaError(f"training data of {name!r:.100}: {error}") from error


def _coverage(data: Any) -> Coverage | None:
    if data is None:
        return None
    _expect_keys(data, ("size", "unknown"))
    return Coverage(_count(data["size"]), _number(data["unknown"]))


def _expect_keys(data: Any, keys: Iterable[str]) -> None:
    if not isinstance(data, dict) or data.keys() != {*keys}:
        raise SchemaError(
            f"Expected an object with the keys {', '.join(keys)}. Received: {data!r:.100}."
        )


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise SchemaError(f"Expected a whole number from 0. Received: {value!r:.100}.")
    return value


def _number(value: Any) -> float | None:
    if value is None or (type(value) in (int, float) and abs(value) <= _MOST):
        return value  # type: ignore[no-any-return]
    raise SchemaError(f"Expected a number or null. Received: {value!r:.100}.")
