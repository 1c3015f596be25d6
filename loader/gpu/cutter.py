"""Rows cut into batches by compiled TensorFlow functions.

This runs in the reader's thread, which must not run eager operations with arguments on the host
(bounds, shapes, axes, sizes): on a GPU, TensorFlow passes such arguments of all threads through one
rendezvous, where they collide with those of the user's thread (tensorflow#62523). Each call of a
compiled function has its own rendezvous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from loader.gpu.column_matrix import BatchFormat, GpuRows, carrier

# Batches whose elements are cut in one call: compiled once, for any number of batches.
_TOGETHER = 64

Tensors = tuple[tf.Tensor, ...]


@dataclass(frozen=True)
class CutBatches:
    """Rows as whole batches, and the remaining rows.

    Attributes:
        matrices: matrices of all batches, shape (batches, columns, rows, 1).
        parts: the parts of each batch, as `BatchFormat.specs` describes them.
        rest: the remaining rows, fewer than a batch.
    """

    matrices: Tensors
    parts: list[Tensors]
    rest: GpuRows


class Cutter:
    """A cutter of rows into batches, in memory that belongs to TensorFlow alone.

    Args:
        batch_format: how columns travel.
        device: TensorFlow's name of the GPU.

    Attributes:
        nothing: no rows.
    """

    def __init__(self, batch_format: BatchFormat, device: str) -> None:
        self._format = batch_format
        self._device = device
        rows = row_specs(batch_format)
        size = tf.TensorSpec((), tf.int32)
        self._cut = tf.function(self._cut_rows, autograph=False).get_concrete_function(
            rows, rows, size
        )
        sizes, bound = tf.TensorSpec((_TOGETHER,), tf.int32), tf.TensorSpec((), tf.int64)
        split = tf.function(_split, autograph=False)
        self._split = [split.get_concrete_function(spec, bound, bound, sizes) for spec in rows[2]]
        with tf.device(device):
            empty = [[np.zeros([n or 0 for n in s.shape], s.dtype.name) for s in p] for p in rows]
            self.nothing = GpuRows(*(tuple(map(tf.constant, part)) for part in empty))

    def cut(self, first: GpuRows, second: GpuRows, batch_size: int) -> CutBatches:
        """Cut rows, joined with the rows before them. On return the GPU has finished.

        Args:
            first: the remaining rows of the previous call.
            second: the new rows.
            batch_size: rows in a batch.
        """
        # The scope must not stay open where a generator yields: another thread may close it.
        with tf.device(self._device):
            batches, rest = self._cut(first.groups(), second.groups(), tf.constant(batch_size))
            return self.divided(batches, GpuRows(*rest))

    def divided(self, batches: Sequence[Tensors], rest: GpuRows) -> CutBatches:
        """The parts of each batch. On return the GPU has finished.

        Args:
            batches: the matrices and padded columns that `by_batch` gives, the elements of all
                batches, and the elements' number in each batch.
            rest: the remaining rows.
        """
        matrices, padded, values, sizes = batches
        lists = [
            _parts(split, each, size.numpy().astype(int).tolist())
            for split, each, size in zip(self._split, values, sizes, strict=True)
        ]
        parts = [*(tf.unstack(each) for each in (*matrices, *padded)), *lists]
        tf.raw_ops.SyncDevice()
        return CutBatches(matrices, list(zip(*parts, strict=True)), rest)

    def by_batch(
        self, matrices: Sequence[tf.Tensor], padded: Sequence[tf.Tensor], batch_size: tf.Tensor
    ) -> tuple[Tensors, Tensors, Tensors]:
        """Rows of whole batches by batch, inside a compiled function.

        Returns:
            The matrices, the padded columns, and for each ragged column the elements in each batch.
        """
        lengths = self._format.lengths_of(matrices)
        return (
            tuple(_by_column(each, batch_size) for each in matrices),
            tuple(_by_batch(each, batch_size) for each in padded),
            tuple(tf.reduce_sum(tf.reshape(each, [-1, batch_size]), axis=1) for each in lengths),
        )

    def _cut_rows(
        self, first: Sequence[Tensors], second: Sequence[Tensors], batch_size: tf.Tensor
    ) -> tuple[tuple[Tensors, ...], tuple[Tensors, ...]]:
        """Matrices and padded columns by batch, elements with each batch's number; the rest."""
        with tf.device(self._device):
            # A copy in any case: cuDF's memory is released soon.
            matrices, padded, values = (
                [tf.concat(pair, 0) for pair in zip(a, b, strict=True)]
                for a, b in zip(first, second, strict=True)
            )
            rows = tf.shape((matrices + padded)[0])[0]
            whole = rows // batch_size * batch_size
            *dense, sizes = self.by_batch(
                [each[:whole] for each in matrices], [each[:whole] for each in padded], batch_size
            )
            counts = [tf.cast(tf.reduce_sum(each), tf.int64) for each in sizes]
            in_batches = tuple(each[:number] for each, number in zip(values, counts, strict=True))
            # Copies, or these few rows would keep the memory of all rows.
            rest = (
                tuple(tf.raw_ops.DeepCopy(x=each[whole:]) for each in matrices),
                tuple(tf.raw_ops.DeepCopy(x=each[whole:]) for each in padded),
                tuple(
                    tf.raw_ops.DeepCopy(x=each[number:])
                    for each, number in zip(values, counts, strict=True)
                ),
            )
            return (*dense, in_batches, sizes), rest


def row_specs(batch_format: BatchFormat) -> tuple[tuple[tf.TensorSpec, ...], ...]:
    """Specs of the tensors of `GpuRows.groups()`."""
    matrices = [tf.TensorSpec((None, len(m)), name) for name, m in batch_format.matrices.items()]
    padded = [tf.TensorSpec((None, c.width), carrier(c.type.dtype)) for c in batch_format.padded]
    values = [tf.TensorSpec((None, 1), carrier(c.type.dtype)) for c in batch_format.ragged]
    return tuple(matrices), tuple(padded), tuple(values)


def _by_batch(rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
    """Reshape to (batches, rows, columns)."""
    return tf.reshape(rows, [-1, batch_size, rows.shape[1]])


def _by_column(rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
    """Reshape to (batches, columns, rows, 1)."""
    return tf.transpose(_by_batch(rows, batch_size), [0, 2, 1])[..., None]


def _split(
    elements: tf.Tensor, start: tf.Tensor, stop: tf.Tensor, sizes: tf.Tensor
) -> list[tf.Tensor]:
    parts: list[tf.Tensor] = tf.split(elements[start:stop], sizes)
    return parts


def _parts(split: Any, elements: tf.Tensor, sizes: list[int]) -> list[tf.Tensor]:
    """The elements of each batch."""
    parts: list[tf.Tensor] = []
    start = 0
    for first in range(0, len(sizes), _TOGETHER):
        group = sizes[first : first + _TOGETHER]
        stop = start + sum(group)
        with tf.device("/cpu:0"):  # a slice takes its bounds from the host
            bounds = [tf.constant(bound, tf.int64) for bound in (start, stop)]
            padded = tf.constant(group + [0] * (_TOGETHER - len(group)), tf.int32)
        parts += split(elements, *bounds, padded)[: len(group)]
        start = stop
    return parts
