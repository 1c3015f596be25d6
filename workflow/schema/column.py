"""A column of data in numpy, for the numpy interpreter.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .derived import Derives

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Strings:
    """Many strings in two arrays, in Arrow's layout: a vocabulary of millions stays small.

    Attributes:
        data: uint8, the UTF-8 bytes of all strings in sequence.
        offsets: int64, shape (N + 1,), the start of each string, and the end.

    Example:
        >>> Strings.of(["ab", "c"]).to_objects().tolist()
        ['ab', 'c']
    """

    data: Array
    offsets: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Iterable[str]) -> Strings:
        """The strings of an iterable."""
        encoded = [text.encode() for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def to_objects(self) -> Array:
        """The strings as an object array of `str`."""
        raw, offsets = self.data.tobytes(), self.offsets.tolist()
        texts = np.empty(len(self), object)
        texts[:] = [raw[start:end].decode() for start, end in zip(offsets, offsets[1:])]  # noqa: B905, RUF007
        return texts


def byte_words(data: Array) -> Array:
    """The eight bytes from each position on, as a little-endian number, with zeros beyond the end.

    Args:
        data: uint8, shape (N,).

    Returns:
        uint64, shape (N + 1,), each word from one byte later than the one before.

    Example:
        >>> byte_words(np.array([1, 2], np.uint8)).tolist()
        [513, 2, 0]
    """
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    return np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))


@dataclass(frozen=True)
class Column(Derives):
    """Values of one column, with nulls and list lengths in separate arrays.

    Attributes:
        values: shape (N,) for a scalar column; for a list column the elements of all rows in
            sequence, shape (sum of lengths,). Strings are an object array of `str`, or `Strings` in
            a column that is a constant of a program.
        valid: boolean, with the shape of `values`, False where the value is null; None if nothing
            is null. `values` is unspecified at nulls.
        lengths: int64 row lengths, shape (N,), for a list column; None for a scalar column. A null
            row equals an empty row: a list column does not distinguish them.
    """

    values: Array | Strings
    valid: Array | None = None
    lengths: Array | None = None

    @property
    def is_list(self) -> bool:
        """Whether each row holds a list."""
        return self.lengths is not None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.values if self.lengths is None else self.lengths)

    @property
    def array(self) -> Array:
        """The values as one array, strings as objects."""
        return self.values.to_objects() if isinstance(self.values, Strings) else self.values

    def offsets(self) -> Array:
        """Start of each row of a list column, and the end: int64, shape (N + 1,)."""
        if self.lengths is None:
            raise TypeError("A scalar column has no offsets.")
        offsets = np.zeros(len(self.lengths) + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets
