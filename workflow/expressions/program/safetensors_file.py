"""Named arrays in a safetensors file: read by memory map, checked before anything is used.

The format is safetensors' (https://github.com/huggingface/safetensors): eight bytes of header
length, a JSON header, the data. The `safetensors` package is compiled, and a stock Triton image
lacks it, so the reader is here; tests compare both directions with the package. The writer is here
too, 20 lines: the package sorts the header, which here keeps the order of columns.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...schema.column import Array, Column, Strings
from ...schema.dtypes import DTYPES

# Enough for 12,000 columns. Parsed JSON takes 20 times its bytes, and a file may be hostile.
MAX_JSON_BYTES = 4_000_000
# The format's name of each dtype: a letter and the bits, such as I32.
_NAMES = {
    name: "BOOL" if name == "bool" else f"{dtype.kind[0].upper()}{dtype.numpy.itemsize * 8}"
    for name, dtype in DTYPES.items()
    if dtype.kind != "string"
}
_DTYPES = {code: name for name, code in _NAMES.items()}


class FormatError(ValueError):
    """A file is damaged, or has the wrong content."""


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Write arrays of the supported dtypes (bool, integers, float32, float64) to one file."""
    # The header keeps the order of the given arrays, and thus the order of columns.
    header: dict[str, Any] = dict.fromkeys(arrays)
    position = 0
    # Wide elements first, so that every array is aligned in the memory map.
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    for name, array in ordered:
        end = position + array.nbytes
        code = _NAMES[array.dtype.name]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    expect_json_size(path, len(text))
    with open(path, "wb") as file:  # noqa: PTH123 - no pathlib needed for one open
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).data)


def read_arrays(
    path: str | os.PathLike[str], further: Mapping[str, str] | None = None
) -> dict[str, Array]:
    """The arrays of a file, as read-only views of its memory map.

    Args:
        path: of the file.
        further: names of numpy's dtypes by the format's, for dtypes that `write_arrays` never writes.

    Raises:
        FormatError: the file is missing, or its header is invalid or does not describe the data
            exactly.
    """
    expect_file(path)
    size = os.path.getsize(path)  # noqa: PTH202
    with open(path, "rb") as file:  # noqa: PTH123
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise FormatError(
                f"{path}: the header's length {length} does not fit a file of {size} bytes."
            )
        expect_json_size(path, length)
        header = parse_json(file.read(length), str(path))
    if not isinstance(header, dict):
        raise FormatError(f"{path}: expected a JSON object as the header.")
    data = (
        np.memmap(path, np.uint8, "r", offset=8 + length)
        if size > 8 + length
        else np.zeros(0, np.uint8)
    )
    arrays, position = {}, 0
    header.pop("__metadata__", None)
    dtypes = {**_DTYPES, **(further or {})}
    for name, entry in sorted(header.items(), key=_start):
        dtype, shape, end = _check_entry(path, name, entry, position, len(data), dtypes)
        arrays[name] = _view(path, name, data[position:end], dtype, shape)
        position = end
    if position != len(data):
        raise FormatError(f"{path}: {len(data) - position} bytes at the end belong to no array.")
    return {name: arrays[name] for name in header}


def _view(path: Any, name: str, data: Array, dtype: np.dtype[Any], shape: list[int]) -> Array:
    if dtype.kind == "b" and data.max(initial=0) > 1:
        raise FormatError(f"{path}: array {name!r:.100} holds bytes that are not booleans.")
    try:
        # Data that another writer did not align is copied, as pyarrow requires.
        return np.require(np.frombuffer(data, dtype).reshape(shape), requirements="A")
    except (ValueError, OverflowError):
        raise FormatError(f"{path}: array {name!r:.100} has an impossible shape.") from None


def _start(item: tuple[str, Any]) -> tuple[int, int]:
    """Position of an entry's data; `_check_entry` refuses invalid ones later."""
    try:
        start, end = item[1]["data_offsets"]
        return int(start), int(end)
    except (TypeError, KeyError, ValueError, OverflowError):
        return -1, -1


def _check_entry(
    path: Any, name: str, entry: Any, start: int, size: int, dtypes: Mapping[str, str]
) -> tuple[np.dtype[Any], list[int], int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(
            f"{path}: array {name!r:.100} needs dtype, shape and data_offsets and nothing else."
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    lists = isinstance(shape, list) and isinstance(offsets, list)
    # Few dimensions, since the product of a million large numbers takes minutes.
    integers = [*shape, *offsets] if lists and len(shape) <= 8 else [None]
    if any(type(n) is not int or not 0 <= n < 2**63 for n in integers) or len(offsets) != 2:
        raise FormatError(
            f"{path}: array {name!r:.100} needs a shape and two offsets of whole numbers."
        )
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in dtypes:
        raise FormatError(
            f"{path}: array {name!r:.100} has the unknown dtype {entry['dtype']!r:.200}."
        )
    dtype = np.dtype(dtypes[entry["dtype"]])
    end = start + math.prod(shape) * dtype.itemsize
    if offsets != [start, end] or end > size:
        raise FormatError(
            f"{path}: array {name!r:.100} overlaps another, leaves a hole or ends outside the file."
        )
    return dtype, shape, end


def expect_file(path: str | os.PathLike[str]) -> None:
    """Check that a path is a plain file.

    Raises:
        FormatError: there is nothing, a link, or something other than a file.
    """
    if os.path.islink(path) or not os.path.isfile(path):  # noqa: PTH113, PTH114
        raise FormatError(f"{path}: expected a file, which is not a link.")


def expect_json_size(path: Any, size: int) -> None:
    """Check that JSON is small enough to be parsed in bounded memory.

    Raises:
        FormatError: it is larger.
    """
    if size > MAX_JSON_BYTES:
        raise FormatError(
            f"Expected at most {MAX_JSON_BYTES} bytes of JSON, for columns, operators and their settings. "
            f"Received: {size}, in {path}. Divide the columns among several workflows, or shorten a long "
            "list in a setting, such as the boundaries of Bucketize or the values of isin."
        )


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON document of at most `MAX_JSON_BYTES`."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    expect_json_size(path, len(text))
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(text)


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON document.

    Raises:
        FormatError: the file is missing, too large or not JSON.
    """
    expect_file(path)
    expect_json_size(path, os.path.getsize(path))  # noqa: PTH202
    with open(path, "rb") as file:  # noqa: PTH123
        return parse_json(file.read(MAX_JSON_BYTES), str(path))


def parse_json(text: bytes | str, where: str) -> Any:
    """Parse a JSON text, and refuse repeated keys.

    Raises:
        FormatError: not JSON, nested too deeply, or a key occurs twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise FormatError(f"{where}: a key occurs twice in one object.")
        return result

    def refuse(token: str) -> None:
        raise FormatError(f"{where}: {token} is not JSON.")

    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        raise FormatError(f"{where}: the JSON is nested too deeply.") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise FormatError(
            str(error) if isinstance(error, FormatError) else f"{where}: {error}."
        ) from None


def column_to_arrays(name: str, column: Column) -> dict[str, Array]:
    """The arrays of a column: `name.values` and, if present, its companions."""
    arrays = {}
    if isinstance(column.values, Strings):
        arrays[f"{name}.utf8"] = column.values.data
        arrays[f"{name}.offsets"] = column.values.offsets
    else:
        arrays[f"{name}.values"] = column.values
    if column.valid is not None:
        arrays[f"{name}.valid"] = column.valid
    if column.lengths is not None:
        arrays[f"{name}.lengths"] = column.lengths
    return arrays


def columns_from_arrays(arrays: Mapping[str, Array], where: str) -> dict[str, Column]:
    """The columns whose arrays `column_to_arrays` made, after checks of every invariant.

    Raises:
        FormatError: a part is missing, has the wrong dtype, or does not fit the others.
    """
    groups: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        name, _, part = key.rpartition(".")
        groups.setdefault(name, {})[part] = array
    return {
        name: _column(f"{where}: column {name!r:.100}", parts) for name, parts in groups.items()
    }


def _column(where: str, parts: dict[str, Array]) -> Column:
    if parts.keys() - {"values", "utf8", "offsets", "valid", "lengths"}:
        raise FormatError(f"{where} has unknown parts: {', '.join(sorted(parts))}.")
    if any(part.ndim != 1 for part in parts.values()):
        raise FormatError(f"{where} has a part that is not one-dimensional.")
    if ("utf8" in parts) != ("offsets" in parts) or ("utf8" in parts) == ("values" in parts):
        raise FormatError(f"{where} needs either values, or utf8 and offsets.")
    values = (
        _strings(where, parts["utf8"], parts["offsets"]) if "utf8" in parts else parts["values"]
    )
    valid, lengths = parts.get("valid"), parts.get("lengths")
    if valid is not None and (valid.dtype != bool or len(valid) != len(values)):
        raise FormatError(f"{where}: valid does not fit its values.")
    if lengths is not None and not _adds_up(lengths, len(values)):
        raise FormatError(f"{where}: lengths do not add up to its values.")
    return Column(values, valid, lengths)


def _adds_up(lengths: Array, total: int) -> bool:
    if lengths.dtype != np.int64 or bool(np.any((lengths < 0) | (lengths > total))):
        return False
    return int(lengths.sum()) == total


def _strings(where: str, data: Array, offsets: Array) -> Strings:
    if data.dtype != np.uint8 or offsets.dtype != np.int64 or len(offsets) == 0:
        raise FormatError(f"{where}: strings need uint8 bytes and int64 offsets.")
    if offsets[0] != 0 or offsets[-1] != len(data) or bool(np.any(offsets[1:] < offsets[:-1])):
        raise FormatError(f"{where}: the offsets of its strings are not in order.")
    _expect_utf8(where, data, offsets)
    return Strings(data, offsets)


def _expect_utf8(where: str, data: Array, offsets: Array) -> None:
    """Refuse bytes that are not UTF-8, since Polars would take them unchecked."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), 2**20):
            decoder.decode(data[start : start + 2**20].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise FormatError(f"{where}: its strings are not UTF-8.") from None
    for start in range(0, len(offsets) - 1, 2**16):
        starts = offsets[start : min(start + 2**16, len(offsets) - 1)]
        if bool(np.any(data[starts[starts < len(data)]] & 0xC0 == 0x80)):
            raise FormatError(f"{where}: a string starts within a character.")
