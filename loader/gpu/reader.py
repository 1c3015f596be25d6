"""Tables on the GPU, turned into rows that TensorFlow can hold.

cuDF decodes row groups into GPU memory on one CUDA stream; on another it shuffles rows and lays the
scalars out row by row. TensorFlow borrows the result through DLPack.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from loader.batches.prefetch import Prefetcher, Wait
from loader.files.layout import BatchColumn
from loader.gpu.column_matrix import BatchFormat, GpuRows, carrier, widened
from loader.gpu.cuda import cudf_version, tell_gpu_errors, use_device
from loader.order.epoch_plan import Chunk, Piece
from loader.read.damaged import PieceReader


class DeviceReader:
    """A reader of chunks into rows on the GPU.

    Args:
        tables: decodes pieces into one cuDF table with their rows in order, and has finished with it.
        batch_format: the columns wanted, and how they travel.
        number: the GPU's number.
        device: TensorFlow's name of the GPU.
        wait: how to wait for `tables`.

    Attributes:
        order_by: the algorithm that derives the row order from a seed, and its version.
    """

    def __init__(
        self,
        tables: PieceReader[Any],
        batch_format: BatchFormat,
        number: int,
        device: str,
        wait: Wait,
    ) -> None:
        import pylibcudf  # noqa: PLC0415 - it needs a GPU to be imported
        from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

        self._plc = pylibcudf
        self._tables = tables
        self._format = batch_format
        self._layout = batch_format.layout
        self._arrange = compiled_arrange(batch_format, device)
        self._number = number
        use_device(number)
        self._stream = Stream()
        self._device = device
        self._wait = wait
        self.order_by = f"cudf {cudf_version()}"

    def read(self, chunks: Sequence[Chunk], seed: tuple[int, int] | None) -> GpuRows:
        """Read the wanted rows of chunks, each shuffled if there is a seed.

        TensorFlow borrows cuDF's memory: keep the rows until TensorFlow's stream has read them.

        Raises:
            LoaderError: a file that cannot be decoded, values that do not fit the layout, or out of
                memory.
        """
        return self._arranged(self._decode(chunks), chunks, seed)

    def read_ahead(
        self, groups: Sequence[Sequence[Chunk]], seed: tuple[int, int] | None
    ) -> Generator[GpuRows]:
        """Read groups of chunks as `read` does; a second thread decodes the next group meanwhile."""
        decode = lambda: map(self._decode, groups)  # noqa: E731
        with Prefetcher(decode, ahead=0, wait=self._wait, name="parquet-decoder") as tables:
            for chunks in groups:
                yield self._arranged(next(tables), chunks, seed)

    def _decode(self, chunks: Sequence[Chunk]) -> Any:
        return self._tables.read(_pieces(chunks))

    def _arranged(
        self, table: Any, chunks: Sequence[Chunk], seed: tuple[int, int] | None
    ) -> GpuRows:
        use_device(self._number)
        with tell_gpu_errors(_pieces(chunks)), tf.device(self._device):
            return self._rows(table, chunks, seed)

    def _rows(self, table: Any, chunks: Sequence[Chunk], seed: tuple[int, int] | None) -> GpuRows:
        if seed is not None or any(chunk.wanted < chunk.rows for chunk in chunks):
            order = self._order(chunks, seed)
            policy = self._plc.copying.OutOfBoundsPolicy.DONT_CHECK
            table = self._plc.copying.gather(table, order, policy, stream=self._stream)
        columns = dict(zip(self._layout.names, table.columns(), strict=True))
        lists = [column for column in self._layout.columns if column.type.is_list]
        lengths = {column.name: self._lengths(columns[column.name]) for column in lists}
        batch_format = self._format
        matrices = [
            self._borrow(
                [(lengths if m.is_lengths else columns)[m.name] for m in members],
                [m.dtype for m in members],
            )
            for members in batch_format.matrices.values()
        ]
        values = {c.name: self._elements(columns[c.name], c.type.dtype) for c in lists}
        padded = [values[c.name] for c in batch_format.padded]
        counts = [self._borrow([lengths[c.name]], ["int32"]) for c in batch_format.padded]
        ragged = [values[c.name] for c in batch_format.ragged]
        self._stream.synchronize()
        rows = GpuRows(*self._arrange(matrices, padded, counts, ragged))
        if padded:  # made from cuDF's memory, released on return: let TensorFlow read it first
            tf.raw_ops.SyncDevice()
        return rows

    def _order(self, chunks: Sequence[Chunk], seed: tuple[int, int] | None) -> Any:
        """Row numbers of the wanted rows of a table of chunks, in the wanted order."""
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
            bounds = [chunk.skip, chunk.skip + chunk.wanted]
            orders += plc.copying.slice(order, bounds, stream=stream)
            start += chunk.rows
        return orders[0] if len(orders) == 1 else plc.concatenate.concatenate(orders, stream=stream)

    def _shuffled(self, order: Any, chunk: Chunk, seed: tuple[int, int]) -> Any:
        """A chunk's row numbers, sorted by a hash of their positions in the chunk."""
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

    def _borrow(self, columns: Sequence[Any], dtypes: Sequence[str]) -> tf.Tensor:
        """Columns of one width side by side, as the floats that carry them, row after row."""
        plc = self._plc
        # These own the memory that the result is a view of.
        plain = [self._plain(c, dtype) for c, dtype in zip(columns, dtypes, strict=True)]
        name = carrier(dtypes[0])
        as_float = plc.DataType(plc.TypeId[name.upper()])
        table = plc.Table(
            [plc.Column(as_float, c.size(), c.data(), None, 0, c.offset(), []) for c in plain]
        )
        if not table.num_rows():
            return tf.constant(np.zeros(0, name))
        matrix = plc.reshape.interleave_columns(table, stream=self._stream)
        shared = plc.interop.to_dlpack(plc.Table([matrix]), stream=self._stream)
        return tf.experimental.dlpack.from_dlpack(shared)

    def _elements(self, column: Any, dtype: str) -> tf.Tensor:
        """The elements of a list column, as the floats that carry them."""
        return self._borrow([column.list_view().child()], [dtype])


def _pieces(chunks: Iterable[Chunk]) -> list[Piece]:
    return [piece for chunk in chunks for piece in chunk.pieces]


def compiled_arrange(batch_format: BatchFormat, device: str) -> Any:
    """Function that gives borrowed memory the shapes of `GpuRows`.

    Compiled, since the reader thread must not run eager operations with arguments on the host
    (bounds, shapes, axes): on a GPU, TensorFlow passes such arguments of all threads through one
    rendezvous, where they collide with those of the user's thread (tensorflow#62523).

    Args:
        batch_format: the columns.
        device: TensorFlow's name of the GPU.

    Returns:
        Function from matrices, elements and row lengths of padded columns, and elements of ragged
        columns, flat or not, to matrices, padded columns and values of `GpuRows`.
    """

    @tf.function(autograph=False)
    def arrange(
        matrices: list[tf.Tensor],
        padded: list[tf.Tensor],
        counts: list[tf.Tensor],
        ragged: list[tf.Tensor],
    ) -> tuple[tuple[tf.Tensor, ...], ...]:
        with tf.device(device):
            return (
                tuple(
                    tf.reshape(matrix, [-1, len(members)])
                    for matrix, members in zip(
                        matrices, batch_format.matrices.values(), strict=True
                    )
                ),
                tuple(map(_pad, batch_format.padded, padded, counts)),
                tuple(tf.reshape(values, [-1, 1]) for values in ragged),
            )

    def specs(dtypes: Iterable[str]) -> list[tf.TensorSpec]:
        return [tf.TensorSpec(None, carrier(dtype)) for dtype in dtypes]

    return arrange.get_concrete_function(
        specs(members[0].dtype for members in batch_format.matrices.values()),
        specs(column.type.dtype for column in batch_format.padded),
        specs("int32" for _ in batch_format.padded),
        specs(column.type.dtype for column in batch_format.ragged),
    )


def _pad(column: BatchColumn, values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """A list column as a dense matrix (rows, width), zeros behind each row's end."""
    width = column.width or 0
    counts = tf.cast(tf.bitcast(tf.reshape(lengths, [-1, 1]), tf.int32), tf.float64)
    # In float64 and int64: TensorFlow has no sum of int32 on a GPU.
    starts = tf.cast(tf.cumsum(counts, exclusive=True), tf.int64)
    places = tf.constant(np.arange(width)[None])
    inside = places < tf.cast(counts, tf.int64)
    # One more element: without any, gather would have nothing to read.
    elements = tf.concat([tf.reshape(values, [-1]), tf.zeros([1], values.dtype)], 0)
    cells = tf.gather(elements, tf.where(inside, starts + places, tf.zeros_like(places)))
    return tf.where(inside, cells, tf.zeros([], values.dtype))
