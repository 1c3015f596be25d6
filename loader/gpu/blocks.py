"""From decoded rows on the GPU to batches on the GPU.

As on the CPU (loader/batches.py), the rows of an epoch are one stream, and batches are
consecutive runs of it. A block of whole batches is transposed once, so that cutting a batch out
of it and a column out of a batch copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from loader.gpu.packing import Packing, Rows, carrier
from loader.gpu.reader import DeviceReader
from loader.plan import Chunk


@dataclass(frozen=True)
class DeviceBlock:
    """Batches on the GPU, each a list of parts as `Packing.specs` describes them."""

    parts: Sequence[Sequence[tf.Tensor]]

    def batches(self, batch_size: int) -> Iterator[list[tf.Tensor]]:
        """The parts of each batch; the block was cut for this batch size."""
        del batch_size
        return map(list, self.parts)


class DeviceBlocks:
    """Reads chunks and gives their rows in blocks of whole batches, nothing lost in between.

    Args:
        reader: decodes pieces of parquet on the GPU.
        packing: how columns travel.
        device: TensorFlow's name of the GPU.
    """

    # Decoding many row groups at once is what keeps a GPU busy: as many as the buffer allows.
    chunks_per_read = 8

    def __init__(self, reader: DeviceReader, packing: Packing, device: str) -> None:
        self.order_by = reader.order_by
        self._reader = reader
        self._packing = packing
        self._device = device
        self._cut = _compiled_cut(packing)

    def blocks(
        self, groups: Sequence[Sequence[Chunk]], batch_size: int, seed: tuple[int, int] | None
    ) -> Iterator[DeviceBlock]:
        """Blocks of whole batches; the last one may end with a short batch.

        Args:
            groups: chunks of an epoch in order, grouped by what is read at once.
            batch_size: rows in each batch.
            seed: seed and epoch number of the row order, or None to leave rows in place.
        """
        carry: Rows | None = None
        # cuDF takes its memory back as soon as the last reference is gone, whether or not
        # TensorFlow's stream has come so far. So references are held until it has.
        held: list[Rows] = []
        for group in groups:
            read = self._reader.read(group, seed)
            block, carry = self._take(read, carry, batch_size)
            held[:] = [read]
            del read
            if block is not None:
                yield block
            del block
        if carry is not None:
            block, _ = self._take(carry, None, carry.count)
            if block is not None:
                yield block

    def _take(
        self, read: Rows, carry: Rows | None, batch_size: int
    ) -> tuple[DeviceBlock | None, Rows | None]:
        """Cut the first rows into batches, carry the others over; all before that is done then."""
        # The scope must not stay open where a generator yields: another thread may close it.
        with tf.device(self._device):
            rows = read if carry is None else _join(carry, read)
            divided = self._divide(rows, rows.count // batch_size * batch_size, batch_size)
            _wait(rows.tensors()[0])
            return divided

    def _divide(
        self, rows: Rows, whole: int, batch_size: int
    ) -> tuple[DeviceBlock | None, Rows | None]:
        lengths = self._packing.lengths_of(rows)
        taken = [int(tf.reduce_sum(each[:whole])) for each in lengths]
        carry = None
        if whole < rows.count:
            carry = Rows(
                tuple(tf.identity(m[whole:]) for m in rows.matrices),
                tuple(p[whole:] for p in rows.padded),
                tuple(v[n:] for v, n in zip(rows.values, taken, strict=True)),
            )
        if not whole:
            return None, carry
        matrices, padded, sizes = self._cut(
            tuple(m[:whole] for m in rows.matrices),
            tuple(p[:whole] for p in rows.padded),
            tuple(each[:whole] for each in lengths),
            tf.constant(batch_size),
        )
        counts = [size.numpy().astype(int).tolist() for size in sizes]
        columns = [tf.unstack(tensor) for tensor in (*map(_owned, matrices), *padded)]
        for values, count, number in zip(rows.values, counts, taken, strict=True):
            # A copy: batches outlive the memory that TensorFlow borrows.
            columns.append(tf.split(tf.raw_ops.DeepCopy(x=values[:number]), count))
        return DeviceBlock(list(zip(*columns, strict=True))), carry


def _compiled_cut(packing: Packing) -> Any:
    """`_cut` as one operation for Python, for any number of rows."""
    matrices = [
        tf.TensorSpec((None, s.shape[0]), s.dtype) for s in packing.specs if s.shape.rank == 3
    ]
    padded = [tf.TensorSpec((None, c.width), carrier(c.type.dtype)) for c in packing.padded]
    lengths = [tf.TensorSpec((None,), tf.float64) for _ in packing.ragged]
    function = tf.function(_cut, autograph=False)
    size = tf.TensorSpec((), tf.int32)
    return function.get_concrete_function(tuple(matrices), tuple(padded), tuple(lengths), size)


def _cut(
    matrices: tuple[tf.Tensor, ...],
    padded: tuple[tf.Tensor, ...],
    lengths: tuple[tf.Tensor, ...],
    batch_size: tf.Tensor,
) -> tuple[tuple[tf.Tensor, ...], ...]:
    """Matrices as (batches, columns, rows, 1), padded (batches, rows, width), sums of lengths."""
    made = []
    for matrix in matrices:
        by_batch = tf.reshape(matrix, [-1, batch_size, matrix.shape[1]])
        made.append(tf.transpose(by_batch, [0, 2, 1])[..., None])
    cut = [tf.reshape(p, [-1, batch_size, p.shape[1]]) for p in padded]
    sums = [tf.reduce_sum(tf.reshape(each, [-1, batch_size]), axis=1) for each in lengths]
    return tuple(made), tuple(cut), tuple(sums)


def _owned(matrix: tf.Tensor) -> tf.Tensor:
    """Batches side by side in memory of TensorFlow's own, for they outlive what it borrows.

    A transposition is a copy, but for one where a side is 1: that is another view.
    """
    return tf.raw_ops.DeepCopy(x=matrix) if 1 in matrix.shape[1:3] else matrix


def _join(first: Rows, second: Rows) -> Rows:
    def join(a: tuple[tf.Tensor, ...], b: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        return tuple(tf.concat(pair, 0) for pair in zip(a, b, strict=True))

    return Rows(
        join(first.matrices, second.matrices),
        join(first.padded, second.padded),
        join(first.values, second.values),
    )


def _wait(tensor: tf.Tensor) -> None:
    """Wait until TensorFlow's stream has made a tensor."""
    tensor[(0,) * tensor.shape.rank].numpy()
