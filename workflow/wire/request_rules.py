"""Rules of a request's tensors for all readers: names, the null string, limits.

The wire format builds on this file. It is also copied beside our backends and into exported
preprocessing steps: numpy and the standard library only, no other file of ours, Python 3.10.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# The two tensors of a flat list: values, and row lengths, which a padded list has as well.
VALUES, NNZS = "__values", "__nnzs"
# No UTF-8 text contains this byte.
NULL_STRING = b"\xff"
# Widths of padded lists are rounded up to a power of two from here, so that few widths occur.
SMALLEST_WIDTH = 8
LIMITS = ("max_rows", "max_list_length", "max_string_bytes")
# Padding that a joint call may have in any case; 128 MB of int64.
_SPARE = 1 << 24


class LimitError(ValueError):
    """A request that exceeds a limit; the text may be shown to the client.

    Args:
        text: names the tensor and the limit's value.
        limit: the limit's name in `ServingOptions`.
    """

    def __init__(self, text: str, limit: str) -> None:
        super().__init__(text)
        self.limit = limit


def is_list_values(name: str, tensors: Container[str]) -> bool:
    """Whether a tensor holds the values of a flat list, so that its rows are not the request's.

    Example:
        >>> is_list_values("tags__values", {"tags__values", "tags__nnzs"})
        True
    """
    return name.endswith(VALUES) and name.removesuffix(VALUES) + NNZS in tensors


def lengths_fit(lengths: npt.NDArray[Any], count: int) -> bool:
    """Whether row lengths add up to a number of values, none of them being negative.

    Example:
        >>> lengths_fit(np.array([2**62, 2**62, 2**62, 2**62, 3]), 3)
        False
    """
    # A sum could overflow to the right total, so each length is compared with the total first.
    outside = np.any(lengths < 0) or np.any(lengths > count)
    return not outside and bool(lengths.sum(dtype=np.int64) == count)


def filler(dtype: np.dtype[Any]) -> Any:
    """The padding after the end of a row: 0, or "" in bytes."""
    return b"" if dtype.kind == "O" else 0


def stacked(tensors: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Tensors concatenated, with those of two dimensions padded to the widest.

    Example:
        >>> stacked([np.array([[1]]), np.array([[2, 3]])]).tolist()
        [[1, 0], [2, 3]]
    """
    if len({tensor.shape[1:] for tensor in tensors}) == 1:
        return np.concatenate(tensors)
    shape = (sum(map(len, tensors)), max(tensor.shape[1] for tensor in tensors))
    joint = np.full(shape, filler(tensors[0].dtype), tensors[0].dtype)
    end = 0
    for tensor in tensors:
        begin, end = end, end + len(tensor)
        joint[begin:end, : tensor.shape[1]] = tensor
    return joint


def parse_limits(text: str) -> dict[str, int]:
    """The limits in a model's config, by name.

    Raises:
        ValueError: they differ from the exporter's format.

    Example:
        >>> parse_limits('{"max_rows": 100}')
        {'max_rows': 100}
    """
    limits: dict[str, int] = json.loads(text)
    known = isinstance(limits, dict) and set(limits) <= set(LIMITS)
    if not known or not all(type(limit) is int and limit > 0 for limit in limits.values()):
        raise ValueError(
            f"Expected limits among {', '.join(LIMITS)} as whole numbers from 1. Received: {text}."
        )
    return limits


def expect_within(
    limits: Mapping[str, int], tensors: Mapping[str, npt.NDArray[Any]], rows: int
) -> None:
    """Refuse a request that exceeds a limit.

    Args:
        limits: a result of `parse_limits`.
        tensors: the request's tensors; a list column is `x__nnzs` with `x__values` [nnz, 1] or with
            a padded `x` [N, width].
        rows: its number of rows.

    Raises:
        LimitError: names the tensor and the limit.
    """
    if rows > limits.get("max_rows", rows):
        raise LimitError(f"it has more than {limits['max_rows']} rows", "max_rows")
    if "max_list_length" in limits:
        _expect_short_lists(limits["max_list_length"], tensors)
    most = limits.get("max_string_bytes")
    for name, tensor in tensors.items():
        if most and tensor.dtype == object and max(map(len, tensor.flat), default=0) > most:
            column = name.removesuffix(VALUES)
            raise LimitError(f"{column} has a string of more than {most} bytes", "max_string_bytes")


def _expect_short_lists(longest: int, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    for name, lengths in tensors.items():
        column = name.removesuffix(NNZS)
        # A column of single numbers may have such a name too.
        if not name.endswith(NNZS) or tensors.keys().isdisjoint((column, column + VALUES)):
            continue
        padded = tensors.get(column)
        # A client rounds the width up, to less than twice the longest list, or to a small minimum.
        wide = (
            padded is not None
            and padded.ndim == 2
            and padded.shape[1] > 2 * longest + SMALLEST_WIDTH
        )
        if wide or (lengths > longest).any():
            raise LimitError(f"{column} has a list of more than {longest}", "max_list_length")


def widens(rows: int, width: int, elements: int, spare: int = _SPARE) -> bool:
    """Whether rows of a width would consist mostly of padding.

    A single row that is far wider than the others of a joint call could take all memory.

    Args:
        rows: the number of rows.
        width: their width, or the sum of the widths of several columns.
        elements: the number of elements without padding.
        spare: the padding that is allowed in any case.

    Example:
        >>> widens(rows=10_000, width=1_000_000, elements=1_050_000)
        True
    """
    return rows * width > 4 * elements + spare
