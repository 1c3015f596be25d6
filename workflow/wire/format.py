"""The wire format of a column: tensor names, shapes and the null code.

The exporter writes these descriptions into the ensemble's config, from which the client reads them,
and the preprocessing model follows them. Copied into exported models: numpy and the standard
library only, Python 3.10.

    scalar   `name`                            [N, 1]
    flat     `name__values` and `name__nnzs`   [sum of nnzs, 1] and [N, 1]; nnzs are row lengths
    padded   `name` and `name__nnzs`           [N, L] and [N, 1]; values after a row's end are ignored
                                               (but strings there must be UTF-8 too), and if L is
                                               the `width`, longer rows are cut
    fixed    `name`                            [N, width]; rows are cut, or padded with 0 or ""

A server joins requests if all tensors have one row for each row, so lists are padded for that;
their lengths are sent too, since no value could mark the end of a row without also being a null or
a real value.

Null is a value of the column's own dtype, so that no further tensor is needed: NaN for floats, the
smallest value for signed and the largest for unsigned integers, and for strings the single byte
0xFF, which no UTF-8 text contains. A column has a null code only if the workflow defines the result
for null; otherwise every value stands for itself, except NaN, which is a null that may not be sent.
A null list is an empty list.

Every runtime refuses the same requests: row lengths that do not fit, columns of different numbers
of rows, a NaN where no null is allowed, and strings that are not UTF-8. Triton's own backends take
lengths that do not fit into padded rows, and cut them to the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..schema.column import Array, Column
from ..schema.dtypes import DTYPES, SchemaError, dtype_of
from ..schema.schema import ColumnSchema, Schema, time_name
from .request_rules import NNZS, NULL_STRING, SMALLEST_WIDTH, VALUES, filler, lengths_fit

LAYOUTS = ("scalar", "flat", "padded", "fixed")


class NullError(SchemaError):
    """A null where none can be sent."""


@dataclass(frozen=True)
class WireColumn:
    """One column of a model's input or output.

    Attributes:
        name: the column's name.
        dtype: the element type, a name of the dtype table.
        layout: "scalar", or for a list "flat", "padded" or "fixed".
        nullable: whether null can be sent, as `null_code`.
        nnzs_dtype: for "flat" and "padded", the dtype of the row lengths.
        width: the width of a "fixed" list; for a "padded" list None if each request chooses it.
        time: the kind of dates or times that the values count in microseconds since 1970-01-01:
            "date", "naive" or the name of a time zone, see `ColumnSchema`. "" for none.
        ends_at_nul: whether the server reads a string up to a NUL, as Triton's onnxruntime backend
            does. Strings with a NUL are then refused, since they would be confused with others.

    Example:
        >>> WireColumn("genres", "int64", "flat").tensors
        {'genres__values': 'int64', 'genres__nnzs': 'int64'}
    """

    name: str
    dtype: str
    layout: str = "scalar"
    nullable: bool = False
    nnzs_dtype: str = "int64"
    width: int | None = None
    time: str = ""
    ends_at_nul: bool = False

    def __post_init__(self) -> None:
        texts, flags = (self.name, self.time), (self.nullable, self.ends_at_nul)
        if {*map(type, texts)} != {str} or {*map(type, flags)} != {bool}:
            raise SchemaError(
                "Expected name and time as strings, nullable and ends_at_nul as booleans. "
                f"Received: {texts} and {flags}."
            )
        if self.layout not in LAYOUTS:
            raise SchemaError(
                f"Expected a layout among {', '.join(LAYOUTS)} for {self.name!r}. "
                f"Received: {self.layout!r}."
            )
        if not _is_width(self.width, self.layout):
            raise SchemaError(
                f"Expected a width from 1 for the {self.layout} list {self.name!r}, and none for "
                f"other columns. Received: {self.width!r}."
            )
        if self.dtype not in DTYPES or not dtype_of(self.nnzs_dtype).is_integer:
            raise SchemaError(
                f"Expected a dtype among {', '.join(DTYPES)}, and integers as row lengths. "
                f"Received: {self.dtype!r} and {self.nnzs_dtype!r} for {self.name!r}."
            )
        if self.nullable and DTYPES[self.dtype].kind == "bool":
            raise SchemaError(
                f"Column {self.name!r} is bool, which has no null code. Cast it to int8."
            )

    @property
    def element(self) -> str:
        """The readable type of the elements: a dtype, or "datetime[us]" and the like."""
        return time_name(self.time) or self.dtype

    @property
    def tensors(self) -> dict[str, str]:
        """The tensor names that carry the column, with their dtypes."""
        values = {self.values_name: self.dtype}
        if self.layout in ("scalar", "fixed"):
            return values
        return values | {self.name + NNZS: self.nnzs_dtype}

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shapes of the tensors; -1 is a dimension that a request chooses."""
        columns = 1 if self.layout in ("scalar", "flat") else self.width or -1
        return {name: (-1, 1 if name.endswith(NNZS) else columns) for name in self.tensors}

    @property
    def values_name(self) -> str:
        """The tensor that carries the values."""
        return self.name + (VALUES if self.layout == "flat" else "")

    @property
    def is_list(self) -> bool:
        """Whether each row holds a list."""
        return self.layout != "scalar"

    @property
    def is_whole_list(self) -> bool:
        """Whether each row holds a list of which all elements are sent."""
        return self.is_list and self.width is None

    @cached_property
    def null_code(self) -> Any:
        """The value that stands for null, or None if the column takes no nulls."""
        return null_code(self.dtype) if self.nullable else None


def _is_width(width: Any, layout: str) -> bool:
    if width is None:
        return layout != "fixed"
    return type(width) is int and width > 0 and layout in ("padded", "fixed")


def wire_column(column: ColumnSchema, nullable: bool) -> WireColumn:
    """The wire form of a schema's column."""
    layout = "flat" if column.is_list else "scalar"
    return WireColumn(column.name, column.dtype, layout, nullable, time=column.time)


def wire_inputs(schema: Schema, given: Iterable[WireColumn] | None) -> dict[str, WireColumn]:
    """The wire form of a program's inputs by name: as given, or derived from the schema.

    By default null can be sent in each nullable column of the schema, except booleans.

    Raises:
        SchemaError: a wire form that does not fit its column.
    """
    if given is None:
        return {
            c.name: wire_column(c, c.nullable and c.info.kind != "bool") for c in schema.columns
        }
    return _fitting("input", schema, given)


def wire_outputs(schema: Schema, given: Iterable[WireColumn] | None) -> dict[str, WireColumn]:
    """The wire form of a program's outputs by name: as given, or derived from the schema.

    Raises:
        SchemaError: a wire form that does not fit its column, or lacks a code for its nulls.
    """
    default = (wire_column(column, column.nullable) for column in schema.columns)
    columns = _fitting("output", schema, default if given is None else given)
    for name, column in columns.items():
        if schema[name].nullable and not column.nullable:
            raise SchemaError(
                f"Output {name!r} can be null, but its wire form has no null code. "
                "Add FillMissing or Categorify to the workflow."
            )
    return columns


def _fitting(side: str, schema: Schema, given: Iterable[WireColumn]) -> dict[str, WireColumn]:
    columns = list(given)
    have = sorted((c.name, c.dtype, c.is_list) for c in columns)
    want = sorted((c.name, c.dtype, c.is_list) for c in schema.columns)
    if have != want:
        raise SchemaError(f"Expected a wire form for each {side}, {want}. Received: {have}.")
    return {column.name: column for column in columns}


def null_code(dtype: str) -> Any:
    """The value of a dtype that stands for null on the wire.

    Example:
        >>> null_code("int32")
        -2147483648
    """
    info = DTYPES[dtype]
    if info.kind == "string":
        return NULL_STRING
    if info.kind == "float":
        return float("nan")
    if info.kind == "bool":
        raise SchemaError("bool has no null code. Cast the column to int8.")
    limits = np.iinfo(info.numpy)
    return int(limits.min if info.kind == "int" else limits.max)


def present(column: WireColumn, values: Array) -> Array | None:
    """Mask of the values that are not the null code; None if none is.

    Example:
        >>> present(WireColumn("x", "int8", nullable=True), np.array([1, -128], np.int8))
        array([ True, False])
    """
    code = column.null_code
    if code is None:
        return None
    # NaN, the null code of floats, differs from itself.
    valid = values == values if code != code else values != code  # noqa: PLR0124
    return None if valid.all() else valid


def expect_no_nan(column: WireColumn, values: Array) -> None:
    """Refuse a NaN in a request for a column that takes no null: NaN on arrival is null.

    Raises:
        NullError: there is one.
    """
    if not column.nullable and values.dtype.kind == "f" and np.isnan(values).any():
        raise _null_refused(column)


def _null_refused(column: WireColumn) -> NullError:
    if DTYPES[column.dtype].kind == "bool":
        return NullError(
            f"Column {column.name!r} holds a null, and a bool on the wire cannot be null. Fill it before "
            "sending, or fit the workflow to data in which the column is int8."
        )
    return NullError(
        f"Column {column.name!r} holds a null, and the workflow does not define the result for null. "
        "Fill it before sending, or add FillMissing or Categorify to the workflow."
    )


def encode_request(column: WireColumn, data: Column) -> dict[str, Array]:
    """The tensors of a request that carry a column.

    Raises:
        SchemaError: as in `encode`; also for a NaN where no null can be sent.
    """
    if data.array.dtype.kind == "f":
        expect_no_nan(column, data.array if data.valid is None else data.array[data.valid])
    return encode(column, data)


def encode(column: WireColumn, data: Column) -> dict[str, Array]:
    """The tensors that carry a column, with nulls replaced by the null code. Strings become bytes.

    Raises:
        SchemaError: a null where none can be sent, or a value that equals the null code or cannot
            be sent.
    """
    if data.is_list != column.is_list:
        raise SchemaError(
            f"Column {column.name!r} is sent as {column.layout}. "
            f"Received: a {'list' if data.is_list else 'scalar'} column."
        )
    if column.dtype == "string":
        values = _encode_strings(column, data.array)
    else:
        values = np.asarray(data.array, DTYPES[column.dtype].numpy)
    values = _encode_nulls(column, values, data.valid)
    if data.lengths is None:
        return {column.name: values.reshape(-1, 1)}
    lengths = data.lengths
    if column.layout == "flat":
        values = values.reshape(-1, 1)
    else:
        values, lengths = _pad(column, values, lengths)
    tensors = {column.values_name: values}
    if column.layout != "fixed":
        nnzs = lengths.astype(DTYPES[column.nnzs_dtype].numpy, copy=False)
        tensors[column.name + NNZS] = nnzs.reshape(-1, 1)
    return tensors


def _pad(column: WireColumn, values: Array, lengths: Array) -> tuple[Array, Array]:
    """The rows of a list column as a matrix, padded, or cut at the width; and their lengths."""
    longest = int(lengths.max(initial=0))
    width = column.width or max(SMALLEST_WIDTH, 1 << (longest - 1).bit_length())
    if longest > width:
        begins = np.cumsum(lengths) - lengths
        values = values[np.arange(len(values)) - np.repeat(begins, lengths) < width]
        lengths = np.minimum(lengths, width)
    padded = np.full((len(lengths), width), filler(values.dtype), values.dtype)
    padded[np.arange(width) < lengths[:, np.newaxis]] = values
    return padded, lengths


def _encode_strings(column: WireColumn, texts: Array) -> Array:
    values = np.empty(len(texts), object)
    try:
        values[:] = [text.encode() if isinstance(text, str) else text for text in texts]
    except UnicodeEncodeError:
        raise SchemaError(
            f"Column {column.name!r} holds text that UTF-8 cannot encode. Fix its surrogates."
        ) from None
    if column.ends_at_nul and any(b"\0" in text for text in values):
        raise SchemaError(
            f"Column {column.name!r} holds a string with a NUL, where Triton's onnxruntime backend "
            'would cut it off. Remove the NUL, or export with runtime="tensorflow".'
        )
    return values


def _encode_nulls(column: WireColumn, values: Array, valid: Array | None) -> Array:
    code = column.null_code
    if code is not None and code == code:  # NaN stands for itself  # noqa: PLR0124
        real = values if valid is None else values[valid]
        if (real == code).any():
            raise SchemaError(
                f"Column {column.name!r} holds {code!r}, which is the null code in {column.dtype}. "
                "If it means null, send null; else fit the workflow to a wider type."
            )
    if valid is None or valid.all():
        return values
    if code is None:
        raise _null_refused(column)
    values = values.copy()
    values[~valid] = code
    return values


def decode_request(column: WireColumn, tensors: dict[str, Array]) -> Column:
    """The column that the tensors of a request carry.

    Raises:
        SchemaError: as in `decode`; also for a NaN where no null can be sent.
    """
    made = decode(column, tensors)
    expect_no_nan(column, made.array)
    return made


def decode(column: WireColumn, tensors: dict[str, Array]) -> Column:
    """The column that tensors carry. Bytes become strings, null codes become nulls.

    Raises:
        SchemaError: row lengths that are negative or do not add up to the number of values,
            or bytes that are not UTF-8.
    """
    values, lengths = _read_rows(column, tensors)
    valid = present(column, values)
    if DTYPES[column.dtype].kind == "string":
        values = _decode_strings(column, values, valid)
    return Column(values, valid, lengths)


def _read_rows(column: WireColumn, tensors: dict[str, Array]) -> tuple[Array, Array | None]:
    """The values in sequence, and the row lengths of a list column."""
    values = tensors[column.values_name]
    if column.layout == "scalar":
        return values.reshape(-1), None
    if column.layout == "fixed":
        return values.reshape(-1), np.full(len(values), values.shape[1], np.int64)
    lengths = tensors[column.name + NNZS].reshape(-1).astype(np.int64)
    if column.layout == "padded":
        if len(lengths) != len(values) or np.any((lengths < 0) | (lengths > values.shape[1])):
            raise SchemaError(f"The row lengths of {column.name!r} do not fit into its rows.")
        return values[np.arange(values.shape[1]) < lengths[:, np.newaxis]], lengths
    values = values.reshape(-1)
    if not lengths_fit(lengths, len(values)):
        raise SchemaError(f"The row lengths of {column.name!r} do not add up to its values.")
    return values, lengths


def _decode_strings(column: WireColumn, values: Array, valid: Array | None) -> Array:
    texts = np.empty(len(values), object)
    try:
        for row, value in enumerate(values):
            text = "" if valid is not None and not valid[row] else value
            texts[row] = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError:
        raise SchemaError(f"Column {column.name!r} holds bytes that are not UTF-8.") from None
    return texts


def dump_columns(columns: Iterable[WireColumn]) -> str:
    """The descriptions as one JSON text, for a config parameter."""
    return json.dumps([asdict(column) for column in columns], separators=(",", ":"))


def parse_columns(text: str) -> list[WireColumn]:
    """The descriptions in a text from `dump_columns`.

    Raises:
        SchemaError: the text does not describe columns.
    """
    try:
        return [WireColumn(**column) for column in json.loads(text)]
    except (TypeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"Expected descriptions of columns. Received: {text:.200}.") from error
