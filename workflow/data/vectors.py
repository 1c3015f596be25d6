"""Pre-trained vectors, from arrays, files of arrays or a table, as ids and one matrix."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from workflow.errors import WorkflowError, cannot_write
from workflow.expressions.polars.series import column_schema
from workflow.expressions.program.safetensors_file import FormatError, read_arrays
from workflow.schema.column import Array
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import listed

from .object_stores import Objects, expect_local
from .sources import Source, copied_series

# Values that are checked at once, so that a mapped file does not fill the memory.
_BLOCK = 2**22
# Dtypes of safetensors in which vectors come besides; numpy has no bfloat16, and takes its two bytes.
_HALVES = {"F16": "float16", "BF16": "V2"}


class Vectors(NamedTuple):
    """Pre-trained vectors, one for each id.

    Attributes:
        ids: integers or strings, each once; None where a vector's row number is its id.
        matrix: float32, (ids, width); a memory map where the file allows it.
    """

    ids: pl.Series | None
    matrix: Array

    @property
    def width(self) -> int:
        """The width of a vector."""
        return int(self.matrix.shape[1])

    def expect_ids(self, column: str, kind: str) -> None:
        """Check that a column's values can be among the ids.

        Args:
            column: name of the column.
            kind: kind of its dtype, such as "int" and "string".

        Raises:
            WorkflowError: its values are of another kind.
        """
        received = "integers" if self.ids is None or self.ids.dtype.is_integer() else "strings"
        expected = {"int": "integers", "uint": "integers", "string": "strings"}.get(kind, kind)
        if received != expected:
            raise WorkflowError(
                f"Expected ids of vectors as {expected}, like column {column!r}. Received: {received}"
                f"{' (row numbers)' if self.ids is None else ''}. Pass ids of the column's kind."
            )


def read_vectors(
    table: Any,
    ids: Any = None,
    vector: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Vectors:
    """Read pre-trained vectors, and validate them.

    Args:
        table: an array (N, width); the path of an .npy or a .safetensors file; or paths of parquet,
            a frame or a dict with a column of ids and one of vectors, which are lists.
        ids: of arrays: a list, an array or a series, the path of an .npy file, or the name of a
            tensor in the same file; by default the id of a vector is its row number. Of a table:
            the name of the column.
        vector: name of the tensor, or of the column of lists; by default the only one.
        storage_options: how to connect to the object stores of paths of parquet.

    Raises:
        WorkflowError: a file is missing or damaged, there is no such tensor or column, vectors have
            different widths, a value is null, NaN or infinite, or ids are repeated, null, of
            another type or of another number.

    Example:
        >>> read_vectors({"item": [7, 9], "vector": [[1.0, 2.0], [3.0, 4.0]]}, ids="item").matrix
        array([[1., 2.],
               [3., 4.]], dtype=float32)
    """
    ending = _ending(table)
    if isinstance(table, np.ndarray) or ending == ".npy":
        _expect_no_name(vector)
    if isinstance(table, np.ndarray) or ending in (".npy", ".safetensors"):
        Objects(storage_options).expect_used()
    if isinstance(table, np.ndarray):
        # Without the values below the mask of a masked array; of other types it is refused.
        filled: Any = np.ma.filled  # numpy has no types for it
        matrix = filled(table, np.nan) if table.dtype.kind == "f" else table
        named = _series(ids, {})
    elif ending == ".npy":
        named, matrix = _series(ids, {}), _npy(Path(table))
    elif ending == ".safetensors":
        named, matrix = _safetensors(Path(table), ids, vector)
    else:
        _expect_table(table)
        named, matrix = _of_table(table, ids, vector, storage_options)
    where = str(table) if isinstance(table, str | os.PathLike) else "the vectors"
    _expect_matrix(where, matrix)
    if named is not None:
        if named.dtype in (pl.Categorical, pl.Enum):
            named = named.cast(pl.String)
        _expect_ids(where, named, len(matrix))
    _expect_finite(where, named, matrix)
    return Vectors(named, matrix.astype(np.float32, copy=False))


def keep_matrix(matrix: Array) -> Array:
    """Copy a matrix into an unnamed temporary file, and map that into memory.

    An array, and a file that is mapped, may change as long as they live: another `np.save` to the same
    path cuts the file, and reading its map then ends the process with a bus error.

    Args:
        matrix: float32, (ids, width).

    Returns:
        The same numbers, as a read-only map of a file (in `tempfile.gettempdir()`) which the operating
        system removes with the map, or with the process.

    Raises:
        WorkflowError: the file cannot be written.

    Example:
        >>> vectors = np.ones((2, 3), np.float32)
        >>> kept = keep_matrix(vectors)
        >>> vectors[:] = 0
        >>> kept.tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    try:
        with tempfile.TemporaryFile() as file:
            for rows in _blocks(matrix):
                file.write(np.ascontiguousarray(rows).data)
            file.flush()
            return np.memmap(file, matrix.dtype, "r", shape=matrix.shape)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkflowError(cannot_write("a temporary file of vectors", reason)) from error


def _blocks(matrix: Array) -> Iterator[Array]:
    """The rows of a matrix, some at a time."""
    step = max(1, _BLOCK // matrix.shape[1])
    return (matrix[start : start + step] for start in range(0, len(matrix), step))


def _ending(table: Any) -> str:
    return Path(table).suffix.lower() if isinstance(table, str | os.PathLike) else ""


def _expect_no_name(vector: str | None) -> None:
    if vector is not None:
        raise WorkflowError(
            f"Expected no vector for one array, which has no tensors with names. Received: {vector!r}. "
            "Leave it out."
        )


def _expect_table(table: Any) -> None:
    """Refuse vectors as lists, which would be taken for paths, and tensors of other libraries."""
    if isinstance(table, list | tuple):
        is_table = isinstance(next(iter(table), ""), str | os.PathLike)
    else:
        is_frame = hasattr(table, "columns") or hasattr(table, "__arrow_c_stream__")
        is_table = is_frame or not hasattr(table, "__array__")
    if not is_table:
        raise WorkflowError(
            "Expected vectors as an array of numpy, files, or a frame or dict with columns of ids and "
            f"of vectors. Received: {type(table).__name__}. Make an array of them: "
            'numpy.asarray(vectors, "float32").'
        )


def _npy(path: Path) -> Array:
    expect_local(path)
    try:
        open_memmap: Any = np.lib.format.open_memmap  # numpy has no types for it
        array: Array = open_memmap(path, mode="r")
    except OSError as error:
        raise WorkflowError(
            f"Expected an array in {path}. Received: {(error.strerror or str(error)).lower()}."
        ) from error
    except (ValueError, EOFError) as error:
        raise WorkflowError(
            f"Expected an array in {path}, as numpy.save writes it. Received: "
            f"{str(error).splitlines()[0].rstrip('.')}."
        ) from error
    return array


def _safetensors(path: Path, ids: Any, vector: str | None) -> tuple[pl.Series | None, Array]:
    expect_local(path)
    try:
        tensors = read_arrays(path, _HALVES)
    except FormatError as error:
        raise WorkflowError(f"Expected tensors of floats in {path}. Received: {error}") from error
    matrices = [name for name, tensor in tensors.items() if tensor.ndim == 2]
    name = matrices[0] if vector is None and len(matrices) == 1 else vector
    if name not in tensors:
        raise WorkflowError(
            f"Expected the name of a tensor in {path} as vector. Received: {vector!r}. "
            f"The tensors are: {listed(tensors)}."
        )
    return _series(ids, tensors), _from_bfloat16(tensors[name])


def _from_bfloat16(tensor: Array) -> Array:
    """A tensor as floats: a bfloat16 is the upper half of a float32."""
    if tensor.dtype.kind != "V":
        return tensor
    return (tensor.view("<u2").astype("<u4") << 16).view("<f4")


def _series(ids: Any, tensors: dict[str, Array]) -> pl.Series | None:
    if ids is None:
        return None
    if isinstance(ids, str) and ids in tensors:
        ids = tensors[ids]
    elif isinstance(ids, str | os.PathLike):
        if _ending(ids) != ".npy":
            raise WorkflowError(
                "Expected ids as values, as the path of an .npy file, or as the name of a tensor. "
                f"Received: {str(ids)!r}. The tensors are: {listed(tensors) or 'none'}."
            )
        ids = _npy(Path(ids))
    try:
        return copied_series("ids", ids)
    except (WorkflowError, TypeError) as error:  # what cannot be looped over
        raise WorkflowError(
            f"Expected ids of one type. Received: {ids!r:.200} ({error})"
        ) from error


def _of_table(
    table: Any, ids: Any, vector: str | None, storage_options: Mapping[str, Any] | None
) -> tuple[pl.Series, Array]:
    source = Source.of(table, storage_options=storage_options)
    types = source.frame.collect_schema()
    if not isinstance(ids, str) or ids not in source.names:
        raise WorkflowError(
            f"Expected the name of the column of ids as ids. Received: {ids!r:.200}. "
            f"The columns are: {listed(source.names)}."
        )
    lists = [n for n, t in types.items() if isinstance(t, pl.List | pl.Array)]
    name = lists[0] if vector is None and len(lists) == 1 else vector
    if name not in source.names:
        raise WorkflowError(
            f"Expected the name of a column of lists as vector. Received: {vector!r}. "
            f"The columns are: {listed(f'{n} ({t})' for n, t in types.items())}."
        )
    with source.errors("The vectors cannot be read"):
        rows = source.select([ids, name]).sound().frame.collect()
    return rows[ids], _matrix(rows[ids], rows[name])


def _matrix(ids: pl.Series, vectors: pl.Series) -> Array:
    if isinstance(vectors.dtype, pl.Array):
        vectors = vectors.arr.to_list()
    if not isinstance(vectors.dtype, pl.List) or not vectors.dtype.inner.is_float():
        raise WorkflowError(
            f"Expected lists of floats in column {vectors.name!r}. Received: {vectors.dtype}."
        )
    lengths = vectors.list.len().fill_null(0)
    width = max(lengths.mode().to_list(), default=0)
    other = (lengths != width).arg_true()
    if len(other):
        raise WorkflowError(
            f"Expected vectors of one width in column {vectors.name!r}, {width} as most are. "
            f"Received: {lengths[other[0]]} numbers for id {ids[other[0]]!r}."
        )
    values = vectors.explode(empty_as_null=False, keep_nulls=False).fill_null(float("nan"))
    return values.to_numpy().reshape(len(ids), width)


def _expect_matrix(where: str, matrix: Array) -> None:
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind != "f":
        raise WorkflowError(
            f"Expected vectors of floats, of shape (ids, width), in {where}. "
            f"Received: shape {matrix.shape}, {matrix.dtype}."
        )


def _expect_ids(where: str, ids: pl.Series, rows: int) -> None:
    try:
        column = column_schema("ids", ids.dtype)
        kind = "list" if column.is_list else column.info.kind
    except SchemaError:
        kind = str(ids.dtype)
    if kind not in ("int", "uint", "string") or ids.dtype.is_temporal():
        raise WorkflowError(
            f"Expected ids of vectors as integers or strings. Received: {ids.dtype} for {where}."
        )
    if len(ids) != rows:
        raise WorkflowError(
            f"Expected an id for each of {rows} vectors in {where}. Received: {len(ids)} ids."
        )
    if ids.has_nulls():
        raise WorkflowError(
            f"Expected ids without null. Received: null in row {ids.is_null().arg_true()[0]} of "
            f"{where}. Leave the row out."
        )
    if len(twice := ids.filter(ids.is_duplicated())):
        raise WorkflowError(
            f"Expected each id once in {where}. Received: {twice[0]!r} "
            f"{twice.eq(twice[0]).sum()} times, and {twice.n_unique() - 1} others."
        )


def _expect_finite(where: str, ids: pl.Series | None, matrix: Array) -> None:
    start = 0
    for rows in _blocks(matrix):
        with np.errstate(over="ignore"):  # of float64 beyond float32
            wrong = ~np.isfinite(rows.astype(np.float32, copy=False))
        if wrong.any():
            row, position = (int(n) for n in np.unravel_index(wrong.argmax(), wrong.shape))
            row += start
            raise WorkflowError(
                f"Expected finite numbers of float32 in {where}. Received: {matrix[row, position]} at position "
                f"{position} of id {(row if ids is None else ids[row])!r}. Leave its row out."
            )
        start += len(rows)
