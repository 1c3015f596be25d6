"""What a column is, and the one table of dtypes that every stage agrees on.

This file is copied into exported models and runs inside Triton: it may import nothing but
numpy and the standard library, and must run on Python 3.10.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np


class SchemaError(ValueError):
    """A column is missing, has the wrong type, or is described in a way that makes no sense."""


@dataclass(frozen=True)
class DType:
    """One row of the dtype table: the names by which each library knows an element type.

    Attributes:
        name: our name, which is also TensorFlow's and, but for "string", numpy's.
        kind: "bool", "int", "uint", "float" or "string".
        numpy: the numpy dtype; strings are held as object arrays of `str`.
        polars: the name of the class in `polars`.
        triton: the datatype in Triton's protocols; its config enum is `TYPE_` + this.
        onnx: the name in `onnx.TensorProto`.
    """

    name: str
    kind: str
    numpy: np.dtype[Any]
    polars: str
    triton: str
    onnx: str

    @property
    def triton_config(self) -> str:
        """The name in config.pbtxt, for example `TYPE_INT64`; bytes are `TYPE_STRING` there."""
        return "TYPE_STRING" if self.triton == "BYTES" else f"TYPE_{self.triton}"

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers, signed or not."""
        return self.kind in ("int", "uint")


def _row(name: str, kind: str, polars: str, triton: str, onnx: str) -> tuple[str, DType]:
    return name, DType(
        name, kind, np.dtype(object if kind == "string" else name), polars, triton, onnx
    )


DTYPES: Mapping[str, DType] = dict(
    [
        _row("bool", "bool", "Boolean", "BOOL", "BOOL"),
        _row("int8", "int", "Int8", "INT8", "INT8"),
        _row("int16", "int", "Int16", "INT16", "INT16"),
        _row("int32", "int", "Int32", "INT32", "INT32"),
        _row("int64", "int", "Int64", "INT64", "INT64"),
        _row("uint8", "uint", "UInt8", "UINT8", "UINT8"),
        _row("uint16", "uint", "UInt16", "UINT16", "UINT16"),
        _row("uint32", "uint", "UInt32", "UINT32", "UINT32"),
        _row("uint64", "uint", "UInt64", "UINT64", "UINT64"),
        _row("float32", "float", "Float32", "FP32", "FLOAT"),
        _row("float64", "float", "Float64", "FP64", "DOUBLE"),
        _row("string", "string", "String", "BYTES", "STRING"),
    ]
)


def dtype_of(name: Any) -> DType:
    """Look a dtype up by our name, a numpy dtype or a numpy scalar type.

    Args:
        name: for example "int32", `np.int32`, `np.dtype("int32")`, `str` or a `DType`.

    Raises:
        SchemaError: when the table has no such dtype.

    Example:
        >>> dtype_of("int32").triton
        'INT32'
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, str) and name in DTYPES:
        return DTYPES[name]
    if name in ("str", "object") or name is str or name is object:
        return DTYPES["string"]
    if isinstance(name, str):
        # numpy would parse other strings as code parses a tuple, and they may come from a file.
        known = np.sctypeDict.get(name)
        numpy_name = name if known is None else np.dtype(known).name
    else:
        try:
            numpy_name = np.dtype(name).name
        except (TypeError, ValueError):
            numpy_name = str(name)
    if numpy_name not in DTYPES:
        raise SchemaError(f"Expected a dtype among {', '.join(DTYPES)}. Received: {name!r:.100}.")
    return DTYPES[numpy_name]


class Tags(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """What a column is for. Selectors, the loader and the exporter read these."""

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    TARGET = "target"
    USER = "user"
    ITEM = "item"
    USER_ID = "user_id"
    ITEM_ID = "item_id"
    CONTEXT = "context"
    TIME = "time"
    LIST = "list"


@dataclass(frozen=True)
class ColumnSchema:
    """A column: its name, element type and shape, and what is known of its values.

    Attributes:
        name: the column's name.
        dtype: the element type; for a list column that of the list's elements.
        is_list: whether each row holds a list of elements.
        nullable: whether a row (for a list column: an element) may be null.
        tags: values of `Tags`, or the user's own words.
        properties: JSON-able facts: `cardinality` (rows that an embedding table needs),
            `embedding_size`, `domain` ({"min", "max"}), `value_count` ({"min", "max"}), and
            `time_unit` "us" where int64 counts microseconds since 1970-01-01 UTC.

    Example:
        >>> ColumnSchema("genres", "int64", is_list=True).dtype
        'int64'
    """

    name: str
    dtype: str
    is_list: bool = False
    nullable: bool = True
    tags: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_of(self.dtype).name)
        tags = (str(tag.value if isinstance(tag, Tags) else tag) for tag in self.tags)
        object.__setattr__(self, "tags", tuple(dict.fromkeys(tags)))

    @property
    def is_time(self) -> bool:
        """Whether the column holds dates or times, as microseconds since 1970-01-01 UTC."""
        return bool(self.dtype == "int64" and self.properties.get("time_unit") == "us")

    @property
    def info(self) -> DType:
        """The row of the dtype table."""
        return DTYPES[self.dtype]

    def with_(self, **changes: Any) -> ColumnSchema:
        """A copy with the given attributes changed."""
        return replace(self, **changes)

    def has_tag(self, tag: str) -> bool:
        """Whether the column carries the tag."""
        return (tag.value if isinstance(tag, Tags) else tag) in self.tags

    def to_json(self) -> dict[str, Any]:
        """A JSON-able description, complete and without defaults left out."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "is_list": self.is_list,
            "nullable": self.nullable,
            "tags": list(self.tags),
            "properties": dict(self.properties),
        }

    @classmethod
    def from_json(cls, data: Any) -> ColumnSchema:
        """The column that `to_json` described.

        Raises:
            SchemaError: when a key is missing, unknown or of the wrong type.
        """
        wanted = {
            "name": str,
            "dtype": str,
            "is_list": bool,
            "nullable": bool,
            "tags": list,
            "properties": dict,
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
        """The type as people write it, for example `list[int64]?`."""
        kind = f"list[{self.dtype}]" if self.is_list else self.dtype
        return kind + ("?" if self.nullable else "")


class Schema(Mapping[str, ColumnSchema]):
    """An ordered set of columns.

    Example:
        >>> schema = Schema([ColumnSchema("userId", "int64", tags=("categorical",))])
        >>> schema.tagged("categorical").names
        ['userId']
    """

    def __init__(self, columns: Iterable[ColumnSchema] = ()) -> None:
        self._columns: dict[str, ColumnSchema] = {}
        for column in columns:
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
                f"No column {name!r}. The columns are: {', '.join(self._columns)}."
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

    def select(self, names: Iterable[str]) -> Schema:
        """The named columns, in the given order."""
        return Schema(self[name] for name in names)

    def without(self, names: Iterable[str]) -> Schema:
        """All columns but the named ones."""
        dropped = set(names)
        return Schema(column for column in self.columns if column.name not in dropped)

    def tagged(self, *tags: str) -> Schema:
        """The columns that carry any of the tags."""
        return Schema(column for column in self.columns if any(column.has_tag(tag) for tag in tags))

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON-able list of columns."""
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """The schema that `to_json` described."""
        if not isinstance(data, list):
            raise SchemaError(f"Expected a list of columns. Received: {_short(data)}.")
        return cls(ColumnSchema.from_json(column) for column in data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.columns == other.columns

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{c.name}: {c}" for c in self.columns) + ")"


def _short(value: Any, limit: int = 200) -> str:
    """A value for an error message, cut to a readable length."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= limit else text[:limit] + " ..."
