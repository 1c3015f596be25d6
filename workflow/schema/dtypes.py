"""The table of dtypes for all stages: the name of each dtype in each library.

This file is copied into exported models and runs inside Triton: it may import nothing but
numpy and the standard library, and must run on Python 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


class SchemaError(ValueError):
    """A column is missing, has the wrong type, or has an invalid description."""


@dataclass(frozen=True)
class DType:
    """One row of the dtype table: each library's name of an element type.

    Attributes:
        name: our name, which is also TensorFlow's and, except for "string", numpy's.
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
    """Look a dtype up by our name, or by another library's.

    Args:
        name: for example "int32", `np.int32`, `np.dtype("int32")`, `pl.Int32`, `str` or a `DType`.

    Raises:
        SchemaError: the table has no such dtype.

    Example:
        >>> dtype_of("int32").triton
        'INT32'
    """
    if isinstance(name, DType):
        return name
    known = _name_of_text(name) if isinstance(name, str) else _name_of_type(name)
    if known not in DTYPES:
        raise SchemaError(f"Expected a dtype among {', '.join(DTYPES)}. Received: {name!r:.100}.")
    return DTYPES[known]


def _name_of_text(text: str) -> str:
    if text in DTYPES:
        return text
    if text in ("str", "object"):
        return "string"
    # numpy would parse other strings, which may come from a file, as Python code.
    known = np.sctypeDict.get(text)
    return text if known is None else np.dtype(known).name


def _name_of_type(type_: Any) -> str:
    if type_ is str or type_ is object:
        return "string"
    polars = {dtype.polars: dtype.name for dtype in DTYPES.values()}
    if str(type_) in polars:
        return polars[str(type_)]
    # For an object that is not a type, numpy would take its default, or the object's dtype.
    if not isinstance(type_, type | np.dtype):
        return ""
    try:
        return np.dtype(type_).name
    except (TypeError, ValueError):
        return ""
