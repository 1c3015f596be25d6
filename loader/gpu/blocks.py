"""Decoded rows on the GPU, cut into batches on the GPU.

As on the CPU (loader/batches/batches.py), the rows of an epoch are one stream, and batches are
consecutive runs of it. A block of whole batches is transposed once, so that cutting a batch out of
the block, and a column out of a batch, copies nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tensorflow as tf

from loader.batches.batches import ALIGNMENT, Array
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.cutter import CutBatches, Cutter
from loader.gpu.dlpack import as_array
from loader.gpu.reader import DeviceReader
from loader.order.epoch_plan import Chunk


class DeviceBatch(NamedTuple):
    """A batch on the GPU.

    Attributes:
        parts: the tensors that `BatchFormat.specs` describes.
        block: `DeviceBlock.columns` of the block that contains this batch.
        number: index of this batch in the block.
    """

    parts: Sequence[tf.Tensor]
    block: Sequence[Array]
    number: int

    def columns(self) -> list[Array]:
        """Columns of the matrices, as views of their memory; empty where it is not aligned."""
        return [column[self.number] for column in self.block]


@dataclass(frozen=True)
class DeviceBlock:
    """Batches on the GPU.

    Attributes:
        parts: the parts of each batch.
        columns: the columns of all batches' matrices, as views of their memory; empty where it is
            not aligned. Reading them on the host, as `repr` would, is invalid.
    """

    parts: Sequence[Sequence[tf.Tensor]]
    columns: Sequence[Array] = field(default=(), repr=False)

    def batches(self, batch_size: int) -> Iterator[DeviceBatch]:
        """Iterate over the batches; the block was cut for this batch size."""
        del batch_size
        return map(DeviceBatch, self.parts, itertools.repeat(self.columns), itertools.count())


class DeviceBlocks:
    """Reads chunks and yields their rows in blocks of whole batches, without gaps.

    Args:
        reader: decodes pieces of parquet on the GPU.
        batch_format: how columns travel.
        device: TensorFlow's name of the GPU.
    """

    # A GPU is busy only when it decodes many row groups at once: as many as the buffer allows.
    chunks_per_read = 8

    def __init__(self, reader: DeviceReader, batch_format: BatchFormat, device: str) -> None:
        self.order_by = reader.order_by
        self._reader = reader
        self._format = batch_format
        self._cutter = Cutter(batch_format, device)

    def blocks(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int, seed: tuple[int, int] | None
    ) -> Iterator[DeviceBlock]:
        """Blocks of whole batches; the last one may end with a short batch.

        Args:
            groups: the chunks of an epoch in order, grouped into reads.
            batch_size: rows in each batch.
            seed: seed and epoch number of the row order, or None to leave rows in place.
        """
        nothing = self._cutter.nothing
        rest = nothing
        for group in groups:
            cut = self._cutter.cut(rest, self._reader.read(group, seed), batch_size)
            rest = cut.rest
            if cut.parts:
                yield self._block(cut)
            del cut  # else it would be held while the next group is read
        if rest.count:
            yield self._block(self._cutter.cut(nothing, rest, rest.count))

    def _block(self, cut: CutBatches) -> DeviceBlock:
        if cut.matrices and all(map(_is_aligned, cut.matrices)):
            arrays = [as_array(matrix) for matrix in cut.matrices]
            return DeviceBlock(cut.parts, self._format.columns(arrays))
        return DeviceBlock(cut.parts)


def _is_aligned(matrix: tf.Tensor) -> bool:
    """Whether each column of a batch begins at an address that TensorFlow may borrow."""
    return bool(matrix.shape[2] * matrix.dtype.size % ALIGNMENT == 0)
