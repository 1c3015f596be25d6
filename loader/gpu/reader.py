"""Parquet to tensors on the GPU, by cuDF.

cuDF decodes row groups into GPU memory on a CUDA stream of the loader's own, shuffles rows there
and lays the scalars out row by row; TensorFlow borrows the result through DLPack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from loader.chunks import null_error, too_long, unreadable
from loader.errors import LoaderError
from loader.files import RowGroup
from loader.gpu.packing import Packing, Rows, carrier, widened
from loader.layout import BatchColumn
from loader.plan import Chunk, Piece
from workflow.schema import DTYPES


class DeviceReader:
    """Decodes pieces of parquet into rows on the GPU.

    Args:
        packing: the columns wanted, and how they travel.
        row_groups: all row groups there are; what is whole of them decodes fastest.
        number: the GPU's number.
        device: TensorFlow's name of it.
    """

    def __init__(
        self, packing: Packing, row_groups: Sequence[RowGroup], number: int, device: str
    ) -> None:
        import pylibcudf  # noqa: PLC0415 - it needs a GPU to be imported
        from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

        self._plc = pylibcudf
        self._packing = packing
        self._layout = packing.layout
        self._whole = {(g.path, g.index): (g.start, g.rows) for g in row_groups}
        self._number = number
        self._device = device
        use_device(number)
        self._stream = Stream()

    def read(self, chunks: Sequence[Chunk], seed: tuple[int, int] | None) -> Rows:
        """The rows of chunks, each shuffled if there is a seed, those that it wants.

        TensorFlow borrows cuDF's memory: keep the rows until its stream has read them.

        Raises:
            LoaderError: a file that cannot be decoded, or values that do not fit the layout.
        """
        use_device(self._number)
        pieces = [piece for chunk in chunks for piece in chunk.pieces]
        table = self._decode(pieces)
        self._check(table, pieces)
        with tf.device(self._device):
            return self._rows(table, chunks, seed)

    def _decode(self, pieces: Sequence[Piece]) -> Any:
        """One table of all pieces' rows, in order."""
        try:
            return self._read_together(pieces)
        except (RuntimeError, MemoryError, OSError) as error:
            for piece in pieces:
                try:
                    self._read_together([piece])
                except (RuntimeError, OSError) as reason:
                    raise unreadable(piece, reason) from error
            if isinstance(error, MemoryError):
                raise LoaderError(
                    f"Expected GPU memory for {sum(p.rows for p in pieces)} rows at once. "
                    f"Received: {error}. Lower buffer_size, or what TensorFlow takes, with "
                    "configure_tensorflow."
                ) from error
            raise unreadable(pieces[0], error) from error

    def _read_together(self, pieces: Sequence[Piece]) -> Any:
        plc = self._plc
        if all(self._whole.get((p.path, p.row_group)) == (p.start, p.rows) for p in pieces):
            paths, groups = _by_file(pieces)
            options = self._options(paths)
            options.set_row_groups(groups)
            tables = [plc.io.parquet.read_parquet(options, stream=self._stream).tbl]
        else:
            tables = []
            for piece in pieces:
                options = self._options([piece.path])
                options.set_skip_rows(piece.start)
                options.set_num_rows(piece.rows)
                tables.append(plc.io.parquet.read_parquet(options, stream=self._stream).tbl)
        table = (
            tables[0]
            if len(tables) == 1
            else plc.concatenate.concatenate(tables, stream=self._stream)
        )
        self._stream.synchronize()
        return table

    def _options(self, paths: list[str]) -> Any:
        parquet, types = self._plc.io.parquet, self._plc.io.types
        builder = parquet.ParquetReaderOptions.builder(types.SourceInfo(paths))
        return builder.column_names(self._layout.names).build()

    def _check(self, table: Any, pieces: Sequence[Piece]) -> None:
        expected = sum(piece.rows for piece in pieces)
        if table.num_rows() != expected:
            raise unreadable(
                pieces[0], f"{table.num_rows()} rows where the footers promised {expected}"
            )
        for column, data in zip(self._layout.columns, table.columns(), strict=True):
            is_list = data.type().id() == self._plc.TypeId.LIST
            values = data.list_view().child() if is_list else data
            if is_list != column.type.is_list or values.type().id() != self._type_id(column):
                # The footer told the type when the loader was made; the file may be another now.
                raise unreadable(pieces[0], f"{data.type().id().name} in column {column.name!r}")
            if DTYPES[column.type.dtype].kind != "float" and values.null_count():
                raise self._null(column, data, pieces)

    def _type_id(self, column: BatchColumn) -> Any:
        dtype = column.type.dtype
        return self._plc.TypeId["BOOL8" if dtype == "bool" else dtype.upper()]

    def _null(self, column: BatchColumn, data: Any, pieces: Sequence[Piece]) -> LoaderError:
        """The error that names the first piece with a null."""
        start = 0
        for piece in pieces:
            (part,) = self._plc.copying.slice(
                data, [start, start + piece.rows], stream=self._stream
            )
            values = (
                part.list_view().get_sliced_child(self._stream) if column.type.is_list else part
            )
            if count := values.null_count():
                return null_error(column, piece, count)
            start += piece.rows
        return null_error(column, pieces[0], data.null_count())

    def _rows(self, table: Any, chunks: Sequence[Chunk], seed: tuple[int, int] | None) -> Rows:
        if seed is not None or any(chunk.wanted < chunk.rows for chunk in chunks):
            order = self._order(chunks, seed)
            policy = self._plc.copying.OutOfBoundsPolicy.DONT_CHECK
            table = self._plc.copying.gather(table, order, policy, stream=self._stream)
        columns = dict(zip(self._layout.names, table.columns(), strict=True))
        lists = [column for column in self._layout.columns if column.type.is_list]
        lengths = {column.name: self._lengths(columns[column.name]) for column in lists}
        matrices = [
            self._matrix(
                [(lengths if m.is_lengths else columns)[m.name] for m in members],
                [m.dtype for m in members],
            )
            for members in self._packing.matrices.values()
        ]
        values = {c.name: self._values(columns[c.name], c.type.dtype) for c in lists}
        counts = {c.name: self._matrix([lengths[c.name]], ["int32"]) for c in self._packing.padded}
        self._stream.synchronize()
        first = chunks[0].pieces[0]
        return Rows(
            tuple(
                tf.reshape(matrix, [-1, len(members)])
                for matrix, members in zip(matrices, self._packing.matrices.values(), strict=True)
            ),
            tuple(_pad(c, values[c.name], counts[c.name], first) for c in self._packing.padded),
            tuple(values[c.name] for c in self._packing.ragged),
        )

    def _order(self, chunks: Sequence[Chunk], seed: tuple[int, int] | None) -> Any:
        """Row numbers of a table of chunks in the order wanted, those that are wanted."""
        plc, stream = self._plc, self._stream
        int32 = plc.DataType(plc.TypeId.INT32)
        one = plc.Scalar.from_py(1, int32, stream=stream)
        orders = []
        start = 0
        for chunk in chunks:
            begin = plc.Scalar.from_py(start, int32, stream=stream)
            order = plc.filling.sequence(chunk.rows, begin, one, stream=stream)
            if seed is not None:
                order = self._shuffled(order, chunk, seed)
            wanted = [chunk.skip, chunk.skip + chunk.wanted]
            orders += plc.copying.slice(order, wanted, stream=stream)
            start += chunk.rows
        return orders[0] if len(orders) == 1 else plc.concatenate.concatenate(orders, stream=stream)

    def _shuffled(self, order: Any, chunk: Chunk, seed: tuple[int, int]) -> Any:
        """A chunk's row numbers, sorted by a hash of their place in the chunk."""
        plc, stream = self._plc, self._stream
        int32 = plc.DataType(plc.TypeId.INT32)
        zero, one = (plc.Scalar.from_py(n, int32, stream=stream) for n in (0, 1))
        places = plc.filling.sequence(chunk.rows, zero, one, stream=stream)
        # The first piece's number, so that the order depends on the rows and not on the rank.
        first = chunk.pieces[0]
        random = np.random.default_rng([*seed, 1, first.number, first.start])
        keys = plc.hashing.xxhash_64(
            plc.Table([places]), int(random.integers(2**63)), stream=stream
        )
        table = plc.sorting.stable_sort_by_key(
            plc.Table([order]),
            plc.Table([keys]),
            [plc.types.Order.ASCENDING],
            [plc.types.NullOrder.AFTER],
            stream=stream,
        )
        return table.columns()[0]

    def _lengths(self, column: Any) -> Any:
        """The row lengths of a list column; a null row is an empty row."""
        plc = self._plc
        counts = plc.lists.count_elements(column, stream=self._stream)
        return self._fill(counts, 0) if counts.null_count() else counts

    def _fill(self, column: Any, value: float) -> Any:
        scalar = self._plc.Scalar.from_py(value, column.type(), stream=self._stream)
        return self._plc.replace.replace_nulls(column, scalar, stream=self._stream)

    def _plain(self, column: Any, dtype: str) -> Any:
        """A column of numbers without nulls, as wide as it travels."""
        if column.null_count():
            column = self._fill(column, float("nan"))
        if widened(dtype) == dtype:
            return column
        wide = self._plc.DataType(self._plc.TypeId[widened(dtype).upper()])
        return self._plc.unary.cast(column, wide, stream=self._stream)

    def _matrix(self, columns: Sequence[Any], dtypes: Sequence[str]) -> tf.Tensor:
        """Columns of one width side by side, as the floats that carry them: flat, row after row."""
        plc = self._plc
        # These own the memory that the floats are a view of.
        plain = [self._plain(c, dtype) for c, dtype in zip(columns, dtypes, strict=True)]
        name = carrier(dtypes[0])
        as_float = plc.DataType(plc.TypeId[name.upper()])
        table = plc.Table(
            [plc.Column(as_float, c.size(), c.data(), None, 0, c.offset(), []) for c in plain]
        )
        if not table.num_rows():
            return tf.zeros([0], name)
        matrix = plc.reshape.interleave_columns(table, stream=self._stream)
        shared = plc.interop.to_dlpack(plc.Table([matrix]), stream=self._stream)
        return tf.reshape(tf.experimental.dlpack.from_dlpack(shared), [-1])

    def _values(self, column: Any, dtype: str) -> tf.Tensor:
        """The elements of a list column, shape (elements, 1)."""
        return self._matrix([column.list_view().child()], [dtype])[:, None]


def _pad(column: BatchColumn, values: tf.Tensor, lengths: tf.Tensor, first: Piece) -> tf.Tensor:
    """A list column as a dense matrix (rows, width), zeros behind each row's end."""
    width = column.width or 0
    counts = tf.cast(tf.bitcast(lengths, tf.int32), tf.float64)
    longest = int(tf.reduce_max(counts)) if counts.shape[0] else 0
    if longest > width:
        raise too_long(column, first, longest)
    # In float64 and int64: TensorFlow has no sum of int32 on a GPU.
    starts = tf.cast(tf.cumsum(counts, exclusive=True), tf.int64)[:, None]
    places = tf.range(width, dtype=tf.int64)[None, :]
    inside = places < tf.cast(counts, tf.int64)[:, None]
    if not values.shape[0]:
        return tf.zeros([counts.shape[0], width], values.dtype)
    found = tf.gather(values[:, 0], tf.where(inside, starts + places, tf.zeros_like(places)))
    return tf.where(inside, found, tf.zeros([], values.dtype))


def use_device(number: int) -> None:
    """Make a GPU the calling thread's.

    Raises:
        LoaderError: there is no such GPU.
    """
    from cuda.bindings import runtime  # noqa: PLC0415 - comes with cuDF

    (status,) = runtime.cudaSetDevice(number)
    if status != runtime.cudaError_t.cudaSuccess:
        raise LoaderError(f"Expected a GPU with the number {number}. Received: {status.name}.")


def _by_file(pieces: Sequence[Piece]) -> tuple[list[str], list[list[int]]]:
    """Files, each with consecutive pieces' row groups, as cuDF reads them in order."""
    paths: list[str] = []
    groups: list[list[int]] = []
    for piece in pieces:
        if not paths or paths[-1] != piece.path:
            paths.append(piece.path)
            groups.append([])
        groups[-1].append(piece.row_group)
    return paths, groups


def prepare_memory() -> int:
    """Let cuDF allocate from a pool that works along CUDA streams, unless one is set already.

    Returns:
        the GPU's memory in bytes.
    """
    import rmm  # noqa: PLC0415 - it needs a GPU to be imported

    if type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource:
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    return int(rmm.mr.available_device_memory()[1])
