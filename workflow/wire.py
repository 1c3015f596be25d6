"""How a column travels to and from the server: tensor names, shapes and the code for null.

The exporter writes these descriptions into the ensemble's config, the client reads them there,
and the preprocessing model obeys them. Copied into exported models: numpy and the standard
library only, Python 3.10.

    scalar   `name`                            [N, 1]
    flat     `name__values` and `name__nnzs`   [sum of nnzs, 1] and [N, 1]; nnzs are row lengths

Null is a value of the column's own dtype, so that no further tensor is needed: NaN for
floats, the smallest value for signed and the largest for unsigned integers, and for strings
the single byte 0xFF, which no UTF-8 text contains. A column has a code for null only where the
workflow says what becomes of a null; elsewhere every value stands for itself. A null list is
an empty list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .expressions.column import Array, Column
from .schema import DTYPES, ColumnSchema, SchemaError, dtype_of

NULL_STRING = b"\xff"
VALUES, NNZS = "__values", "__nnzs"


@dataclass(frozen=True)
class WireColumn:
    """One column of a model's input or output.

    Attributes:
        name: the column's name; for `layout="flat"` two tensors carry it.
        dtype: the element type, a name of the dtype table.
        layout: "scalar" or "flat".
        nullable: whether null can be sent, in the encoding that `null_code` names.
        nnzs_dtype: for "flat", the dtype of the row lengths.

    Example:
        >>> WireColumn("genres", "int64", "flat").tensors
        {'genres__values': 'int64', 'genres__nnzs': 'int64'}
    """

    name: str
    dtype: str
    layout: str = "scalar"
    nullable: bool = False
    nnzs_dtype: str = "int64"

    def __post_init__(self) -> None:
        if self.layout not in ("scalar", "flat"):
            raise SchemaError(
                f"Expected the layout scalar or flat for {self.name!r}. Received: {self.layout!r}."
            )
        if self.dtype not in DTYPES or not dtype_of(self.nnzs_dtype).is_integer:
            raise SchemaError(
                f"Expected a dtype among {', '.join(DTYPES)}, and integers as row lengths. "
                f"Received: {self.dtype!r} and {self.nnzs_dtype!r} for {self.name!r}."
            )
        if self.nullable and DTYPES[self.dtype].kind == "bool":
            raise SchemaError(
                f"Column {self.name!r} is bool, which has no code for null. Cast it to int8."
            )

    @property
    def tensors(self) -> dict[str, str]:
        """The tensor names that carry the column, with their dtypes."""
        if self.layout == "scalar":
            return {self.name: self.dtype}
        return {self.name + VALUES: self.dtype, self.name + NNZS: self.nnzs_dtype}

    @property
    def null_code(self) -> Any:
        """The value that stands for null, or None when the column takes no nulls."""
        return null_code(self.dtype) if self.nullable else None


def wire_column(column: ColumnSchema, nullable: bool) -> WireColumn:
    """The wire form of a schema's column."""
    return WireColumn(column.name, column.dtype, "flat" if column.is_list else "scalar", nullable)


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
        raise SchemaError("bool has no code for null. Cast the column to int8.")
    limits = np.iinfo(info.numpy)
    return int(limits.min if info.kind == "int" else limits.max)


def encode(column: WireColumn, data: Column) -> dict[str, Array]:
    """The tensors that carry a column, nulls replaced by their code. Strings become bytes.

    Raises:
        SchemaError: a null where none can be sent, or a value that is the code for null.
    """
    if data.is_list != (column.layout == "flat"):
        raise SchemaError(
            f"Column {column.name!r} is sent as {column.layout}. "
            f"Received: a {'list' if data.is_list else 'scalar'} column."
        )
    is_string = DTYPES[column.dtype].kind == "string"
    values = _encode_strings(column, data.array) if is_string else _as_dtype(column, data.array)
    values = _encode_nulls(column, values, data.valid)
    tensors = {column.name + (VALUES if data.is_list else ""): values.reshape(-1, 1)}
    if data.lengths is not None:
        tensors[column.name + NNZS] = data.lengths.astype(column.nnzs_dtype).reshape(-1, 1)
    return tensors


def _encode_strings(column: WireColumn, texts: Array) -> Array:
    values = np.empty(len(texts), object)
    try:
        values[:] = [text.encode() if isinstance(text, str) else text for text in texts]
    except UnicodeEncodeError:
        raise SchemaError(
            f"Column {column.name!r} holds text that UTF-8 cannot encode. Mend its surrogates."
        ) from None
    return values


def _as_dtype(column: WireColumn, values: Array) -> Array:
    return np.asarray(values, DTYPES[column.dtype].numpy)


def _encode_nulls(column: WireColumn, values: Array, valid: Array | None) -> Array:
    code = column.null_code
    if code is not None and code == code:  # NaN stands for itself  # noqa: PLR0124
        real = values if valid is None else values[valid]
        if np.any(real == code):
            raise SchemaError(
                f"Column {column.name!r} holds {code!r}, which is the code for null in {column.dtype}."
            )
    if valid is None or bool(np.all(valid)):
        return values
    if code is None:
        raise SchemaError(
            f"Column {column.name!r} holds a null, and the workflow does not say what becomes of it. "
            "Fill it before sending, or add FillMissing or Categorify to the workflow."
        )
    values = values.copy()
    values[~valid] = code
    return values


def decode(column: WireColumn, tensors: dict[str, Array]) -> Column:
    """The column that tensors carry. Bytes become strings, the code for null becomes null.

    Raises:
        SchemaError: row lengths that are negative or do not add up to the number of values,
            or bytes that are not UTF-8.
    """
    values = tensors[column.name + (VALUES if column.layout == "flat" else "")].reshape(-1)
    lengths = None
    if column.layout == "flat":
        lengths = tensors[column.name + NNZS].reshape(-1).astype(np.int64)
        # A sum could wrap round to the right total, so each length is held to the total first.
        if np.any(lengths < 0) or np.any(lengths > len(values)) or lengths.sum() != len(values):
            raise SchemaError(f"The row lengths of {column.name!r} do not add up to its values.")
    code = column.null_code
    valid = None
    if code is not None:
        valid = values == values if DTYPES[column.dtype].kind == "float" else values != code  # noqa: PLR0124
        valid = None if np.all(valid) else valid
    if DTYPES[column.dtype].kind == "string":
        values = _decode_strings(column, values, valid)
    return Column(values, valid, lengths)


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
    """The descriptions that `dump_columns` wrote.

    Raises:
        SchemaError: the text describes no columns.
    """
    try:
        return [WireColumn(**column) for column in json.loads(text)]
    except (TypeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"Expected descriptions of columns. Received: {text:.200}.") from error
