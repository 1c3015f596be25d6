"""Limits of a request, checked before any work on it.

Lies beside our backends and in exported preprocessing steps: numpy and the standard library only,
Python 3.10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

LIMITS = ("max_rows", "max_list_length", "max_string_bytes")
VALUES, NNZS = "__values", "__nnzs"
# Elements that filling up may add to a joint call in any case; 128 MB of int64.
_SPARE = 1 << 24


class LimitError(ValueError):
    """A request beyond a limit; the text may go to the client."""


def parse_limits(text: str) -> dict[str, int]:
    """The limits that a model's config sets, by name.

    Raises:
        ValueError: they are not what the exporter writes.

    Example:
        >>> parse_limits('{"max_rows": 100}')
        {'max_rows': 100}
    """
    limits = json.loads(text)
    known = isinstance(limits, dict) and set(limits) <= set(LIMITS)
    if not known or not all(type(limit) is int and limit > 0 for limit in limits.values()):
        raise ValueError(
            f"Expected limits among {', '.join(LIMITS)} as whole numbers from 1. Received: {text}."
        )
    return limits


def expect_within(
    limits: Mapping[str, int], tensors: Mapping[str, npt.NDArray[Any]], rows: int
) -> None:
    """Refuse a request beyond a limit.

    Args:
        limits: those of `parse_limits`.
        tensors: the request's; a list column is `x__nnzs` with `x__values` [nnz, 1] or with a
            padded `x` [N, width].
        rows: how many rows it has.

    Raises:
        LimitError: naming the tensor and the limit.
    """
    if rows > limits.get("max_rows", rows):
        raise LimitError(f"it has more than {limits['max_rows']} rows")
    if "max_list_length" in limits:
        _expect_short_lists(limits["max_list_length"], tensors)
    most = limits.get("max_string_bytes")
    for name, tensor in tensors.items():
        if most and tensor.dtype == object and any(len(v) > most for v in tensor.ravel().tolist()):
            column = name.removesuffix(VALUES)
            raise LimitError(f"{column} has a string of more than {most} bytes")


def _expect_short_lists(longest: int, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    for name, lengths in tensors.items():
        if not name.endswith(NNZS):
            continue
        column = name.removesuffix(NNZS)
        padded = tensors.get(column)
        # A client rounds the width up, by less than to twice the longest list, or to a few.
        wide = padded is not None and padded.ndim == 2 and padded.shape[1] > 2 * longest + 8
        if wide or (lengths > longest).any():
            raise LimitError(f"{column} has a list of more than {longest}")


def widens(rows: int, width: int, elements: int, spare: int = _SPARE) -> bool:
    """Whether so many elements would mostly be filled up, were they laid out as rows of a width.

    A single row that is far wider than the others of a joint call could take all memory.

    Args:
        rows: how many rows.
        width: their width, or the widths of several columns added up.
        elements: how many elements there are.
        spare: the elements that filling up may add in any case.

    Example:
        >>> widens(rows=10_000, width=1_000_000, elements=1_050_000)
        True
    """
    return rows * width > 4 * elements + spare
