"""Values of a vocabulary column, from its list or its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import tensorflow as tf

from training.errors import TrainingError
from workflow.expressions.polars.series import to_column
from workflow.schema.column import Column


def vocabulary_keys(column: Any) -> Column:
    """The values of a vocabulary column in the order of their ids.

    Args:
        column: a VocabularyListCategoricalColumn or a VocabularyFileCategoricalColumn.

    Raises:
        TrainingError: the file is missing, cannot be read, is shorter than `vocabulary_size`, or
            has a value twice or, for integers, one that is none; or bytes that are not UTF-8.

    Example:
        >>> column = tf.feature_column.categorical_column_with_vocabulary_list("city", ["b", "a"])
        >>> vocabulary_keys(column).rows
        2
    """
    if hasattr(column, "vocabulary_list"):
        values: list[Any] = list(column.vocabulary_list)
    else:
        values = _values_of_file(column)
    is_integer = column.dtype.is_integer
    texts = pl.Series([_text(column.key, value) for value in values], strict=False)
    keys = texts.cast(pl.Int64 if is_integer else pl.String)
    if (twice := keys.filter(keys.is_duplicated())).len():
        raise TrainingError(
            f"Expected each value of the vocabulary of {column.key!r} once. "
            f"Received: {twice[0]!r} {keys.eq(twice[0]).sum()} times."
        )
    return to_column(keys, compact_strings=True)


def _text(key: str, value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise TrainingError(
            f"Expected the vocabulary of {key!r} in UTF-8, as the data's strings are. "
            f"Received: {value!r:.100}. Decode it, such as by value.decode('latin-1')."
        ) from error


def _values_of_file(column: Any) -> list[str | int]:
    path, size = Path(column.vocabulary_file), column.vocabulary_size
    try:
        lines = [line for line, _ in zip(_lines(path, column.file_format), range(size))]  # noqa: B905
    except (OSError, UnicodeDecodeError, tf.errors.OpError) as error:
        raise TrainingError(
            f"Expected the vocabulary of {column.key!r}, one value a line, in {path}. "
            f"Received: {_reason(error)}."
        ) from error
    if len(lines) < size:
        raise TrainingError(
            f"Expected vocabulary_size={size} values of {column.key!r} in {path}. "
            f"Received: {len(lines)}. Give the column the size of its file, or none."
        )
    return (
        [_integer(column.key, path, *at) for at in enumerate(lines, 1)]
        if (column.dtype.is_integer)
        else list(lines)
    )


def _lines(path: Path, file_format: str | None) -> Iterator[str]:
    """The values of a file, as TensorFlow's tables read it."""
    if file_format == "tfrecord_gzip":
        for record in tf.data.TFRecordDataset(str(path), "GZIP"):
            yield record.numpy().decode()
        return
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n").removesuffix("\r")


def _integer(key: str, path: Path, number: int, line: str) -> int:
    try:
        return int(line)
    except ValueError as error:
        raise TrainingError(
            f"Expected integers as the vocabulary of {key!r}, as its dtype says. "
            f"Received: {line!r:.100} in {path}, line {number}."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error).splitlines()[0].rstrip(".")
