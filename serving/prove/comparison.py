"""Comparison of the server's answers with the offline ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from serving.errors import ClientError
from serving.prove.report import FEATURE_TOLERANCE, ComparedRow, OutputParity
from workflow.expressions.polars.series import to_column
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import dtype_of
from workflow.wire.format import WireColumn, decode, encode

# Of an output, of a list, and of a text.
_MOST_ROWS, _MOST_ELEMENTS, _MOST_LETTERS = 3, 20, 200


def compare_prediction(
    name: str, offline: Array, served: Array, tolerance: float, nan: Array | None = None
) -> OutputParity:
    """Compare the answers of a network, of shape (N, ...).

    Floats are equal if |served - offline| <= tolerance * max(1, |offline|), since the precision of
    a float is relative to its size. NaN equals NaN, and an infinity equals itself. Integers and
    strings must be identical.

    Args:
        name: the output.
        offline: the network's answer in this process; strings as `bytes` or `str`.
        served: the server's answer.
        tolerance: as above.
        nan: mask of the rows for which TensorFlow is given a NaN or an infinity, (N,), whose answers
            are compared only where neither side has a NaN: see `undefined`.

    Raises:
        ClientError: the shapes differ.

    Example:
        >>> compare_prediction("y", np.array([2000.0]), np.array([2000.01]), 1e-5).mismatches
        0
    """
    _expect_shape(name, offline.shape, served.shape)
    unknown = np.zeros(offline.shape, bool)
    if nan is not None:
        unknown[nan] = undefined(offline[nan], served[nan])
    differs, gaps = _judged(offline, served, tolerance)
    gaps[unknown] = 0.0
    unknown &= differs
    within = tuple(range(1, differs.ndim))
    wrong = (differs & ~unknown).any(axis=within)
    parity = _summary(name, "prediction", wrong, gaps.max(axis=within, initial=0.0))
    worst = _worst(wrong, gaps.max(axis=within, initial=0.0), offline, served)
    return replace(parity, undefined=int(unknown.any(axis=within).sum()), worst=worst)


def compare_feature(column: WireColumn, offline: pl.Series, served: pl.Series) -> OutputParity:
    """Compare a column of the preprocessing step, lists row by row; null equals an empty list.

    Args:
        column: its wire form.
        offline: the column from `Workflow.transform`.
        served: the column from the client.

    Raises:
        ClientError: the server answered with another number of rows.
    """
    _expect_shape(column.name, offline.shape, served.shape)
    expected, received = _as_served(column, offline), to_column(served)
    lengths, served_lengths = expected.lengths, received.lengths
    if lengths is not None and (wrong := lengths != served_lengths).any():
        return _feature(column, wrong, np.where(wrong, np.inf, 0.0), offline, served)
    (here, here_null), (there, there_null) = map(_values_and_nulls, (expected, received))
    limit = FEATURE_TOLERANCE if there.dtype.kind == "f" else 0.0
    differs, gaps = _judged(here, there, limit)
    lost = here_null != there_null
    differs, gaps = differs | lost, np.where(lost, np.inf, gaps)
    if lengths is not None:
        rows = np.repeat(np.arange(len(lengths)), lengths)
        of_values, differs = differs, np.zeros(len(lengths), bool)
        differs[rows[of_values]] = True
        of_values, gaps = gaps, np.zeros(len(lengths))
        np.maximum.at(gaps, rows, of_values)
    return _feature(column, differs, gaps, offline, served)


def _feature(
    column: WireColumn, differs: Array, gaps: Array, offline: pl.Series, served: pl.Series
) -> OutputParity:
    parity = _summary(column.name, "feature", differs, gaps)
    return replace(parity, worst=_worst(differs, gaps, offline, served))


def undefined(offline: Array, served: Array) -> Array:
    """Mask of the answers to a NaN that depend on TensorFlow's kernels, and so on the processor.

    Layers make NaN of an infinity too. relu of NaN is NaN, or 0 where TensorFlow joins it with a
    product. So a number may stand beside a NaN, and integers and strings, which were chosen by
    numbers, beside any others.

    Args:
        offline: the answers of this process to rows with a NaN or an infinity among the features.
        served: the server's answers.

    Example:
        >>> undefined(np.array([np.nan, 0.5]), np.array([0.4, 0.6])).tolist()
        [True, False]
    """
    if offline.dtype.kind != "f" or served.dtype.kind != "f":
        return np.ones(offline.shape, bool)
    return np.isnan(offline) | np.isnan(served)


def rows_with(features: pl.DataFrame, found: Callable[[Array], Array]) -> Array:
    """Mask of the rows with a number for which a function is true, also in a list.

    Args:
        features: columns of any kind; a null among floats is NaN.
        found: takes some numbers, as float64, and gives a mask.

    Example:
        >>> rows_with(pl.DataFrame({"price": [1.0, None], "ids": [[1], [2]]}), np.isnan).tolist()
        [False, True]
    """
    rows = np.zeros(features.height, bool)
    for column in map(to_column, features.get_columns()):
        if column.array.dtype.kind not in "iuf":
            continue
        values, _ = _values_and_nulls(column)
        matches = found(values.astype(np.float64))
        if column.lengths is not None:
            matches = np.repeat(np.arange(column.rows), column.lengths)[matches]
        rows[matches] = True
    return rows


def columns_with(features: pl.DataFrame, found: Callable[[Array], Array]) -> dict[str, int]:
    """The columns with a number for which a function is true, each with its number of such rows.

    Example:
        >>> columns_with(pl.DataFrame({"price": [1.0, None], "ids": [[1], [2]]}), np.isnan)
        {'price': 1}
    """
    columns = {series.name: series.to_frame() for series in features.get_columns()}
    counts = {name: int(rows_with(column, found).sum()) for name, column in columns.items()}
    return {name: count for name, count in counts.items() if count}


def _expect_shape(name: str, offline: tuple[int, ...], served: tuple[int, ...]) -> None:
    if offline != served:
        raise ClientError("PARITY", f"Expected {name} of the shape {offline}. Received: {served}.")


def _as_served(column: WireColumn, offline: pl.Series) -> Column:
    """Cut or pad lists to their fixed width; convert numbers that travel as floats."""
    data = to_column(offline)
    if column.layout == "fixed":
        wire = replace(column, dtype=dtype_of(data.array.dtype.name).name)
        data = decode(wire, encode(wire, data))
    if column.dtype.startswith("float"):
        data = Column(data.array.astype(column.dtype), data.valid, data.lengths)
    return data


def _values_and_nulls(column: Column) -> tuple[Array, Array]:
    """The values, and a mask of nulls. A null float is NaN, as on the wire."""
    nulls = np.zeros(len(column.array), bool) if column.valid is None else ~column.valid
    if column.array.dtype.kind != "f":
        return column.array, nulls
    return np.where(nulls, np.nan, column.array), np.zeros_like(nulls)


def _judged(offline: Array, served: Array, tolerance: float) -> tuple[Array, Array]:
    """Mask of the values that differ, and the differences; strings differ by 0."""
    if offline.dtype == object:
        return _as_bytes(offline) != _as_bytes(served), np.zeros(offline.shape)
    if offline.dtype.kind in "iub" and served.dtype.kind in "iub":
        # int64 and uint64 have no dtype in common but float64, which rounds both.
        is_mixed = np.result_type(offline, served).kind == "f"
        if is_mixed:
            offline, served = offline.astype(object), served.astype(object)
        larger, smaller = np.maximum(offline, served), np.minimum(offline, served)
        if not is_mixed:  # Unsigned, so that no difference overflows.
            larger, smaller = larger.astype(np.uint64), smaller.astype(np.uint64)
        gaps = larger - smaller
        return gaps != 0, gaps.astype(np.float64)
    here, there = offline.astype(np.float64), served.astype(np.float64)
    same = (here == there) | (np.isnan(here) & np.isnan(there))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.abs(there - here) / np.maximum(1.0, np.abs(here))
    # NaN here comes from a comparison with NaN or an infinity.
    gaps = np.where(same, 0.0, np.where(np.isnan(gaps), np.inf, gaps))
    return gaps > tolerance, gaps


def _as_bytes(texts: Array) -> Array:
    """Strings in UTF-8: TensorFlow answers with bytes, the client with `str`."""
    values = [text.encode() if isinstance(text, str) else text for text in texts.reshape(-1)]
    encoded = np.empty(len(values), object)
    encoded[:] = values
    return encoded.reshape(texts.shape)


def _summary(name: str, kind: str, differs: Array, gaps: Array) -> OutputParity:
    """Parity of an output: the number of rows that differ, and the first of them."""
    wrong = np.flatnonzero(differs)
    first = int(wrong[0]) if len(wrong) else None
    largest = float(gaps.max(initial=0.0))
    return OutputParity(name, kind, len(differs), len(wrong), largest, first)


def _worst(
    differs: Array, gaps: Array, offline: Array | pl.Series, served: Array | pl.Series
) -> tuple[ComparedRow, ...]:
    """The rows with the largest differences, those beyond the tolerance first."""
    return tuple(
        ComparedRow(
            row, as_text(offline[row]), as_text(served[row]), float(gaps[row]), not differs[row]
        )
        for row in map(int, np.lexsort((-gaps, ~differs))[:_MOST_ROWS])
    )


def as_text(value: Any) -> str:
    """A value of a row for a reader, cut if it is long.

    Example:
        >>> as_text(None), as_text(np.array([0.1], np.float32)), as_text("a" * 1000)[-3:]
        ('null', '0.1', 'aa…')
    """
    if isinstance(value, np.ndarray):
        numbers = value.reshape(-1)[: _MOST_ELEMENTS + 1].tolist()
        if value.dtype == np.float32:  # with the digits that distinguish float32
            numbers = [float(str(np.float32(number))) for number in numbers]
        value = numbers[0] if value.size == 1 else numbers
    elif isinstance(value, pl.Series):
        value = value.head(_MOST_ELEMENTS + 1).to_list()
    if value is None:
        return "null"
    if isinstance(value, bytes):
        value = value[: _MOST_LETTERS + 1].decode(errors="backslashreplace")
    text = repr(value[: _MOST_LETTERS + 1]) if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
