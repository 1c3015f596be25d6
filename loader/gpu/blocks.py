"""Decoded rows on the GPU, cut into batches on the GPU.

As on the CPU (loader/batches/batches.py), rows in order are one stream, of which batches are
consecutive runs; a shuffled batch takes runs of several chunks. A block of whole batches is
transposed once, so that cutting a batch out of the block, and a column out of a batch, copies
nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tensorflow as tf

from loader.batches.batches import ALIGNMENT, Array
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.cutter import CutBatches, Cutter
from loader.gpu.dealer import Dealer
from loader.gpu.dlpack import as_array
from loader.gpu.pool import Pool, rows_of
from loader.gpu.reader import DeviceReader
from loader.order.epoch_plan import Chunk
from loader.order.mixing import Mixed, Mixture


class DeviceBatch(NamedTuple):
    """A batch on the GPU.

    Attributes:
        parts: the tensors that `BatchFormat.specs` describes.
        block: the block that contains this batch.
        number: index of this batch in the block.
    """

    parts: Sequence[tf.Tensor]
    block: DeviceBlock
    number: int

    def matrices(self) -> list[Array]:
        """The matrices, (columns, rows, 1), as views of their memory; empty where it is not aligned."""
        return [matrix[self.number] for matrix in self.block.matrices]

    def columns(self) -> list[Array]:
        """Columns of the matrices, as views of their memory."""
        return [column[self.number] for column in self.block.columns]


@dataclass(frozen=True)
class DeviceBlock:
    """Batches on the GPU.

    Attributes:
        parts: the parts of each batch.
        matrices: the matrices of all batches, as views of their memory; empty where it is not
            aligned. Reading them on the host, as `repr` would, is invalid.
        columns: the matrices' columns, likewise.
    """

    parts: Sequence[Sequence[tf.Tensor]]
    matrices: Sequence[Array] = field(default=(), repr=False)
    columns: Sequence[Array] = field(default=(), repr=False)

    def batches(self, batch_size: int) -> Iterator[DeviceBatch]:
        """Iterate over the batches; the block was cut for this batch size."""
        del batch_size
        return map(DeviceBatch, self.parts, itertools.repeat(self), itertools.count())


class DeviceBlocks:
    """Blocks in a GPU's memory.

    Args:
        reader: decodes pieces of parquet on the GPU.
        batch_format: how columns travel.
        device: TensorFlow's name of the GPU.
    """

    # A GPU is busy only when it decodes many row groups at once: as many as the buffer allows.
    chunks_per_read = 8
    pieces_per_chunk = 8
    row_groups_mixed = 16
    most_parts: int | None = 8
    reads_parts = False

    def __init__(self, reader: DeviceReader, batch_format: BatchFormat, device: str) -> None:
        self.order_by = reader.order_by
        self._reader = reader
        self._format = batch_format
        self._cutter = Cutter(batch_format, device)
        self._dealer = Dealer(batch_format, self._cutter, device)

    def in_order(self, groups: Sequence[Sequence[Chunk]], batch_size: int) -> Iterator[DeviceBlock]:
        """See `BlockSource`."""
        nothing = self._cutter.nothing
        rest = nothing
        for group in groups:
            cut = self._cutter.cut(rest, self._reader.read(group, None), batch_size)
            rest = cut.rest
            if cut.parts:
                yield self._block(cut)
            del cut  # else it would be held while the next group is read
        if rest.count:
            yield self._block(self._cutter.cut(nothing, rest, rest.count))

    def mixed(
        self,
        groups: Sequence[Sequence[Chunk]],
        mixture: Mixture,
        batch_size: int,
        seed: tuple[int, int],
    ) -> Iterator[DeviceBlock]:
        """See `BlockSource`."""
        numbers = iter(mixture.chunks)
        unread = deque([next(numbers) for _ in group] for group in groups)
        firsts = [chunk_numbers[0] for chunk_numbers in unread]
        pool = Pool(self._dealer, mixture.chunks)
        # A block takes several times its memory, so none is larger than a read.
        most = max(sum(chunk.wanted for chunk in group) for group in groups)
        # Closed with this iterator, and not when it is collected, since it has a thread.
        with contextlib.closing(self._reader.read_ahead(groups, seed)) as reads:
            for end, batches in _together(mixture.batches, firsts, most, batch_size):
                while unread and unread[0][0] < end:
                    pool.add(unread.popleft(), next(reads))
                yield self._block(pool.deal(batches))

    def _block(self, cut: CutBatches) -> DeviceBlock:
        if cut.matrices and all(map(_is_aligned, cut.matrices)):
            arrays = [as_array(matrix) for matrix in cut.matrices]
            return DeviceBlock(cut.parts, arrays, self._format.columns(arrays))
        return DeviceBlock(cut.parts)


def _together(
    batches: Iterable[Mixed], firsts: Sequence[int], most: int, batch_size: int
) -> Iterator[tuple[int, list[Mixed]]]:
    """Groups of consecutive batches of one size that need the same reads, each with its chunks' end.

    Args:
        batches: all batches.
        firsts: the number of each read's first chunk.
        most: the most rows together; one batch in any case.
        batch_size: rows in a batch, apart from a last, short one.
    """
    for _, group in itertools.groupby(batches, lambda batch: bisect_left(firsts, batch.begun)):
        while together := [*itertools.islice(group, max(most // batch_size, 1))]:
            whole = len(together) - (rows_of(together[-1]) < batch_size)
            for alike in filter(None, (together[:whole], together[whole:])):
                yield alike[-1].begun, alike


def _is_aligned(matrix: tf.Tensor) -> bool:
    """Whether each column of a batch begins at an address that TensorFlow may borrow."""
    return bool(matrix.shape[2] * matrix.dtype.size % ALIGNMENT == 0)
