"""Schemas: each column's name, element type and shape, and facts about its values.

This file is copied into exported models and runs inside Triton: it may import nothing but
numpy and the standard library, and must run on Python 3.10.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, EnumMeta
from typing import Any

from .dtypes import DTYPES, DType, SchemaError, dtype_of
from .names import did_you_mean, listed
from .own_names import OwnNames


class _Members(EnumMeta):
    """Metaclass that lets `help` show the members, and no methods of `str`."""

    def __dir__(cls) -> list[str]:
        return [*cls.__members__, "__doc__", "__module__"]


class Tags(str, Enum, metaclass=_Members):  # noqa: UP042 - StrEnum came with Python 3.11
    """Purposes of a column, named as in Merlin. Selectors, the loader and the exporter use them."""

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    TARGET = "target"
    BINARY_CLASSIFICATION = "binary_classification"
    MULTI_CLASS_CLASSIFICATION = "multi_class_classification"
    REGRESSION = "regression"
    ID = "id"
    USER = "user"
    ITEM = "item"
    SESSION = "session"
    USER_ID = "user_id"
    ITEM_ID = "item_id"
    SESSION_ID = "session_id"
    CONTEXT = "context"
    TIME = "time"
    LIST = "list"
    SEQUENCE = "sequence"
    TEXT = "text"
    TOKENIZED = "tokenized"
    EMBEDDING = "embedding"


# Values of `ColumnSchema.time` besides the names of time zones.
DATE, NAIVE = "date", "naive"


def time_name(time: str) -> str:
    """The readable name of a kind of time.

    Args:
        time: a value of `ColumnSchema.time`.

    Example:
        >>> time_name("date"), time_name("naive"), time_name("Asia/Tokyo")
        ('date', 'datetime[us]', 'datetime[us, Asia/Tokyo]')
    """
    return {"": "", DATE: DATE, NAIVE: "datetime[us]"}.get(time, f"datetime[us, {time}]")


def are_alike_times(one: str, other: str) -> bool:
    """Whether two kinds of time can be compared: times of any two zones can, because both are moments.

    Args:
        one: a value of `ColumnSchema.time`; "" if there are no times.
        other: another such value.

    Example:
        >>> are_alike_times("UTC", "Asia/Tokyo"), are_alike_times("UTC", "naive")
        (True, False)
    """
    return one == other or {one, other}.isdisjoint({"", DATE, NAIVE})


@dataclass(frozen=True)
class ColumnSchema(metaclass=OwnNames):
    """A column: its name, element type and shape, and facts about its values.

    Attributes:
        name: the column's name.
        dtype: the element type; for a list column the type of the list's elements.
        is_list: whether each row holds a list of elements.
        nullable: whether a row (for a list column: an element) may be null.
        tags: values of `Tags`, or the user's own words; one or several, kept as a tuple.
        properties: JSON-able facts: `cardinality` (rows that an embedding table needs),
            `embedding_size`, `domain` ({"min", "max"}), `value_count` ({"min", "max"}) and
            `fit_digest` (of what was learnt on the way to the column).
        time: the kind of dates or times that int64 counts in microseconds since 1970-01-01: "date",
            "naive" (a time without a zone, counted as if it were in UTC), or the name of a time
            zone, such as "Europe/Berlin" (counted from 1970-01-01 UTC, whatever the zone). "" if
            the column holds no times.

    Example:
        >>> ColumnSchema("genres", "int64", is_list=True).dtype
        'int64'
    """

    name: str
    dtype: str
    is_list: bool = False
    nullable: bool = True
    tags: Sequence[str] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    time: str = ""

    def __post_init__(self) -> None:
        _expect_name(self.name)
        object.__setattr__(self, "dtype", dtype_of(self.dtype).name)
        if self.dtype != "int64":  # Times that were cast are plain numbers.
            object.__setattr__(self, "time", "")
        tags = (str(tag.value if isinstance(tag, Tags) else tag) for tag in _each(self.tags))
        object.__setattr__(self, "tags", tuple(dict.fromkeys(tags)))

    @property
    def is_time(self) -> bool:
        """Whether the column holds dates or times."""
        return bool(self.time)

    @property
    def info(self) -> DType:
        """The row of the dtype table."""
        return DTYPES[self.dtype]

    def with_(self, **changes: Any) -> ColumnSchema:
        """A copy with the given attributes changed."""
        return replace(self, **changes)

    def has_tag(self, tag: str) -> bool:
        """Whether the column has the tag."""
        return (tag.value if isinstance(tag, Tags) else tag) in self.tags

    def to_json(self) -> dict[str, Any]:
        """A complete JSON-able description, including defaults."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "is_list": self.is_list,
            "nullable": self.nullable,
            "tags": list(self.tags),
            "properties": dict(self.properties),
            "time": self.time,
        }

    @classmethod
    def from_json(cls, data: Any) -> ColumnSchema:
        """The column described by a result of `to_json`.

        Raises:
            SchemaError: a key is missing, unknown or of the wrong type.
        """
        wanted = {
            "name": str,
            "dtype": str,
            "is_list": bool,
            "nullable": bool,
            "tags": list,
            "properties": dict,
            "time": str,
        }
        if not isinstance(data, dict) or data.keys() != wanted.keys():
            raise SchemaError(
                f"Expected a column with the keys {', '.join(wanted)}. Received: {_short(data)}."
            )
        for key, kind in wanted.items():
            if type(data[key]) is not kind:
                raise SchemaError(
                    f"Expected {key} of a column as {kind.__name__}. Received: {_short(data[key])}."
                )
        if not all(isinstance(tag, str) for tag in data["tags"]):
            raise SchemaError(
                f"Expected tags of {data['name']!r} as strings. Received: {_short(data['tags'])}."
            )
        return cls(**{**data, "tags": tuple(data["tags"])})

    def __str__(self) -> str:
        """The readable type, for example `list[int64]?` or `datetime[us, UTC]`."""
        element = time_name(self.time) or self.dtype
        return (f"list[{element}]" if self.is_list else element) + ("?" if self.nullable else "")


class Schema(Mapping[str, ColumnSchema], metaclass=OwnNames):
    """An ordered set of columns.

    Raises:
        SchemaError: two columns with one name, or an item that is not a `ColumnSchema`.

    Example:
        >>> schema = Schema([ColumnSchema("userId", "int64", tags=("categorical",))])
        >>> schema.tagged("categorical").names
        ['userId']
    """

    def __init__(self, columns: Iterable[ColumnSchema] = ()) -> None:
        self._columns: dict[str, ColumnSchema] = {}
        # Indexes of the columns, computed on first use.
        self._places: dict[str, int] = {}
        for column in columns:
            if not isinstance(column, ColumnSchema):
                raise SchemaError(
                    "Expected columns with their types, such as ColumnSchema('userId', 'int64'). "
                    f"Received: {_short(column)}."
                )
            if column.name in self._columns:
                raise SchemaError(
                    f"Expected distinct column names. Received: {column.name!r} twice."
                )
            self._columns[column.name] = column

    def __getitem__(self, name: str) -> ColumnSchema:
        try:
            return self._columns[name]
        except KeyError:
            raise SchemaError(
                f"No column {name!r}. The columns are: {listed(self._columns)}."
                + did_you_mean([name], self._columns)
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return list(self._columns)

    @property
    def columns(self) -> list[ColumnSchema]:
        """The columns, in order."""
        return list(self._columns.values())

    def select(self, names: str | Iterable[str]) -> Schema:
        """The named columns, in the given order."""
        return Schema(self[name] for name in _each(names))

    def keep(self, names: str | Iterable[str]) -> Schema:
        """The columns that are among some names, in this schema's order.

        Example:
            >>> schema = Schema(ColumnSchema(name, "int64") for name in "abc")
            >>> schema.keep({"c", "a", "elsewhere"}).names
            ['a', 'c']
        """
        # Not a loop over all columns: each of thousands of nodes keeps one of thousands.
        if len(self._places) != len(self._columns):
            self._places = {name: place for place, name in enumerate(self._columns)}
        kept = sorted(
            {name for name in _each(names) if name in self._columns}, key=self._places.__getitem__
        )
        return self.select(kept)

    def without(self, names: str | Iterable[str]) -> Schema:
        """All columns except the named ones."""
        dropped = set(_each(names))
        return Schema(column for column in self.columns if column.name not in dropped)

    def tagged(self, *tags: str) -> Schema:
        """The columns that have any of the tags."""
        return Schema(column for column in self.columns if any(column.has_tag(tag) for tag in tags))

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON-able list of columns."""
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """The schema described by a result of `to_json`."""
        if not isinstance(data, list):
            raise SchemaError(f"Expected a list of columns. Received: {_short(data)}.")
        return cls(ColumnSchema.from_json(column) for column in data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.columns == other.columns

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        # Only a notebook needs it; a server has no pictures.
        from workflow.picture.markup import table  # noqa: PLC0415

        rows = [
            (name, str(column), ", ".join(column.tags), facts[:200])
            for name, column in self._columns.items()
            for facts in [", ".join(f"{k} {v}" for k, v in column.properties.items())]
        ]
        return table(rows, ("column", "type", "tags", "properties"))

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{c.name}: {c}" for c in self.columns) + ")"


def _each(names: str | Iterable[str]) -> Iterable[str]:
    """One name, or each of several; a text is one, and not its letters."""
    return (names,) if isinstance(names, str) else names


def _expect_name(name: Any) -> None:
    if not isinstance(name, str):
        raise SchemaError(f"Expected the name of a column as a text. Received: {name!r:.100}.")
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise SchemaError(
            f"Expected the name of one column. Received: {name!r:.100}, which Polars treats as a "
            "pattern of names, in every place. Rename the column before it enters the workflow."
        )


def _short(value: Any) -> str:
    """A value for an error message, cut to a readable length."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 200 else text[:200] + " ..."
