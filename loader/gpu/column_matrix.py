"""Matrices that carry the columns of a batch together on the GPU.

Passing forty tensors a batch costs more than reading them. So all scalars of one width travel as
one matrix, which is split where the batch is used: by an eager operation, or inside the compiled
train step.

TensorFlow runs int32 through the host in most kernels that only move data (slice, concat, reshape,
unstack), because it uses int32 for shapes. So all columns travel as floats of the same width, bit
for bit, and get their dtypes at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from loader.batches.batches import Array
from loader.errors import LoaderError
from loader.files.layout import BatchColumn, BatchLayout
from workflow.schema.dtypes import DTYPES

# Narrower dtypes are widened to this one, which has the width of the narrowest carrier.
_WIDENED = "int32"
_CARRIERS = {4: "float32", 8: "float64"}


def carries(column: BatchColumn) -> bool:
    """Whether the GPU path takes a column: all but strings and float16."""
    return column.type.dtype not in ("string", "float16")


def widened(dtype: str) -> str:
    """The dtype in which a column travels: its own, or int32 for a narrower one."""
    return dtype if DTYPES[dtype].numpy.itemsize >= 4 else _WIDENED


def carrier(dtype: str) -> str:
    """The float dtype that carries the bits of a dtype."""
    return _CARRIERS[np.dtype(widened(dtype)).itemsize]


def _same(tensor: Any) -> Any:
    return tensor


@dataclass(frozen=True)
class ColumnPlace:
    """Place of a column in a batch, and the conversion back to its own dtype.

    Attributes:
        number: index among the batch's flat tensors.
        bits: the dtype of the bits; None if the carrier's dtype.
        dtype: the column's own dtype; None if `bits` is that already.
    """

    number: int
    bits: tf.DType | None
    dtype: tf.DType | None

    @classmethod
    def of(cls, number: int, dtype: str) -> ColumnPlace:
        """The place of a column of this dtype."""
        bits = None if widened(dtype) == carrier(dtype) else tf.as_dtype(widened(dtype))
        return cls(number, bits, None if widened(dtype) == dtype else tf.as_dtype(dtype))

    def restore(self, tensor: tf.Tensor) -> tf.Tensor:
        """Convert a column from its carrier to its own dtype."""
        return self.narrow(tensor if self.bits is None else tf.bitcast(tensor, self.bits))

    def narrow(self, tensor: tf.Tensor) -> tf.Tensor:
        """Convert a column from the dtype of its bits to its own dtype."""
        return tensor if self.dtype is None else tf.cast(tensor, self.dtype)


@dataclass(frozen=True)
class GpuRows:
    """Rows on the GPU, in carriers.

    Attributes:
        matrices: for each width, the scalars and list lengths, shape (rows, columns).
        padded: each padded column, shape (rows, width).
        values: the elements of each ragged column, shape (elements, 1).
    """

    matrices: tuple[tf.Tensor, ...]
    padded: tuple[tf.Tensor, ...]
    values: tuple[tf.Tensor, ...]

    @property
    def count(self) -> int:
        """The number of rows."""
        return int((self.matrices + self.padded)[0].shape[0])

    def groups(self) -> tuple[tuple[tf.Tensor, ...], ...]:
        """All tensors, as a compiled function takes them."""
        return self.matrices, self.padded, self.values


@dataclass(frozen=True)
class MatrixColumn:
    """A column of a matrix: a scalar column, or the row lengths of a ragged one."""

    name: str
    dtype: str
    is_lengths: bool = False


class BatchFormat:
    """Assignment of a layout's columns to matrices.

    Raises:
        LoaderError: a column of strings or float16, which the GPU path does not carry.
    """

    def __init__(self, layout: BatchLayout) -> None:
        for column in layout.columns:
            if not carries(column):
                raise LoaderError(
                    f"Expected columns of numbers or booleans on the GPU. Received: column "
                    f"{column.name!r} of {column.type}. Encode it in the workflow with "
                    'Categorify, or pass device="cpu".'
                )
        self.layout = layout
        self.padded = [c for c in layout.columns if c.is_padded]
        self.ragged = [c for c in layout.columns if c.is_ragged]
        members = [m for column in layout.columns for m in _members(column)]
        by_carrier = {
            name: [m for m in members if carrier(m.dtype) == name] for name in _CARRIERS.values()
        }
        self.matrices = {name: group for name, group in by_carrier.items() if group}

    @cached_property
    def specs(self) -> list[tf.TensorSpec]:
        """The parts of a batch: matrices (columns, rows, 1), padded (rows, width), values (n, 1)."""
        return [
            *(tf.TensorSpec((len(group), None, 1), name) for name, group in self.matrices.items()),
            *(tf.TensorSpec((None, c.width), carrier(c.type.dtype)) for c in self.padded),
            *(tf.TensorSpec((None, 1), carrier(c.type.dtype)) for c in self.ragged),
        ]

    @cached_property
    def _places(self) -> tuple[list[list[ColumnPlace]], list[ColumnPlace]]:
        """Places of columns in a batch: for each matrix, and for the other parts."""
        numbers = itertools.count()
        values, lengths = {}, {}
        for column in self.layout.columns:
            values[column.name] = next(numbers)
            if column.is_ragged:
                lengths[column.name] = next(numbers)
        matrices = [
            [
                ColumnPlace.of((lengths if m.is_lengths else values)[m.name], m.dtype)
                for m in members
            ]
            for members in self.matrices.values()
        ]
        lists = [ColumnPlace.of(values[c.name], c.type.dtype) for c in [*self.padded, *self.ragged]]
        return matrices, lists

    @cached_property
    def _order(self) -> list[int]:
        """The index of each tensor of a batch among the columns of all parts."""
        matrices, lists = self._places
        numbers = [place.number for place in itertools.chain(*matrices, lists)]
        return sorted(range(len(numbers)), key=numbers.__getitem__)

    def tensors(self, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The tensors of a batch in the order of the layout; a ragged column gives two."""
        columns = [
            place.restore(column)
            for part, places in zip(parts, self._places[0], strict=False)
            for column, place in zip(tf.unstack(part, len(places)), places, strict=True)
        ]
        return self._arranged(columns, parts)

    @cached_property
    def places(self) -> list[ColumnPlace]:
        """The places of the columns that `columns` cuts out of the matrices."""
        return [*itertools.chain(*self._places[0])]

    @cached_property
    def dtypes(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The dtypes of the columns of each matrix: of the bits, and their own."""
        return tuple(
            tuple((widened(member.dtype), member.dtype) for member in members)
            for members in self.matrices.values()
        )

    def batch_of(
        self,
        columns: Sequence[Any],
        parts: Sequence[tf.Tensor],
        convert: Callable[[Any], Any] = _same,
    ) -> Any:
        """A batch of a framework's tensors.

        Args:
            columns: those of the matrices, in the order of `places` and of their own dtypes.
            parts: of the batch.
            convert: makes a tensor of TensorFlow the framework's.
        """
        return self.layout.pack(self._arranged([*columns], parts, convert))

    def _arranged(
        self,
        columns: list[Any],
        parts: Sequence[tf.Tensor],
        convert: Callable[[Any], Any] = _same,
    ) -> list[Any]:
        lists = zip(parts[len(self.matrices) :], self._places[1], strict=True)
        all_columns = columns + [convert(place.restore(part)) for part, place in lists]
        return [all_columns[number] for number in self._order]

    def columns(self, matrices: Sequence[Array]) -> list[Array]:
        """Cut the matrices of many batches into columns with the dtypes of their bits.

        Args:
            matrices: carriers, shape (batches, columns, rows, 1). They are not read here.

        Returns:
            For each column an array of shape (batches, rows, 1).
        """
        columns = []
        for matrix, places in zip(matrices, self._places[0], strict=True):
            for number, place in enumerate(places):
                dtype = matrix.dtype if place.bits is None else place.bits.as_numpy_dtype
                columns.append(matrix.view(dtype)[:, number])
        return columns

    def lengths_of(self, matrices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The row lengths of each ragged column, shape (rows,), as float64: exact, and on the GPU.

        Args:
            matrices: `matrices` of `GpuRows`.
        """
        lengths: dict[str, tf.Tensor] = {}
        for members, matrix in zip(self.matrices.values(), matrices, strict=True):
            for number, member in enumerate(members):
                if member.is_lengths:
                    lengths[member.name] = tf.cast(
                        tf.bitcast(matrix[:, number], tf.int32), tf.float64
                    )
        return [lengths[column.name] for column in self.ragged]


def _members(column: BatchColumn) -> list[MatrixColumn]:
    if column.is_ragged:
        return [MatrixColumn(column.name, "int32", is_lengths=True)]
    return [] if column.type.is_list else [MatrixColumn(column.name, column.type.dtype)]
