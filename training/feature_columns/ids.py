"""Categorical columns as functions from a column of data to ids, which `LambdaOp` traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training.errors import TrainingError
from training.feature_columns.vocabulary import vocabulary_keys
from workflow.expressions.language.tree import Expression, where
from workflow.expressions.language.types import ExpressionError
from workflow.schema.column import Column

Ids = Callable[[Expression], Expression]
# The id of a value that is missing, or unknown and has no id of its own.
UNKNOWN = -1


def ids_of(column: Any) -> tuple[Ids, int]:
    """The ids of a column with an identity, a vocabulary or a hash, and their number.

    The ids are TensorFlow's, except those of hashes. As in its dense tensors, an empty string and
    the integer -1 are missing; so is null.

    Raises:
        TrainingError: a vocabulary that cannot be read, or settings that exclude each other.
    """
    made = _OF_KIND[type(column).__name__]
    return made(column), int(column.num_buckets)


def _identity(column: Any) -> Ids:
    size, default = column.number_buckets, column.default_value

    def ids(values: Expression) -> Expression:
        _expect(values, column, integers=True)
        ids = values.cast("int64")
        if default is not None:
            ids = where((values < 0) | (values >= size), int(default), ids)
        return _unless_missing(values, ids)

    return ids


def _vocabulary(column: Any) -> Ids:
    buckets, default = column.num_oov_buckets, column.default_value
    default = UNKNOWN if default is None else int(default)
    if buckets and default != UNKNOWN:
        raise TrainingError(
            f"Expected num_oov_buckets or default_value for {column.key!r}. Received: "
            f"num_oov_buckets={buckets} and default_value={default}. Leave one of them out."
        )
    keys: Column = vocabulary_keys(column)
    size = keys.rows
    if not UNKNOWN <= default < size:
        raise TrainingError(
            f"Expected default_value from -1 to {size - 1} for {column.key!r}, whose vocabulary has "
            f"{size} values. Received: {default}."
        )

    def ids(values: Expression) -> Expression:
        _expect(values, column, integers=column.dtype.is_integer)
        ids = values.lookup(keys, missing=default)
        if buckets:
            ids = where(ids < 0, values.hash_bucket(buckets) + size, ids)
        return _unless_missing(values, ids)

    return ids


def _hashed(column: Any) -> Ids:
    def ids(values: Expression) -> Expression:
        _expect(values, column, integers=column.dtype.is_integer)
        return _unless_missing(values, values.hash_bucket(column.hash_bucket_size))

    return ids


_OF_KIND: dict[str, Callable[[Any], Ids]] = {
    "IdentityCategoricalColumn": _identity,
    "VocabularyListCategoricalColumn": _vocabulary,
    "VocabularyFileCategoricalColumn": _vocabulary,
    "HashedCategoricalColumn": _hashed,
}
KINDS = frozenset(_OF_KIND)


def _unless_missing(values: Expression, ids: Expression) -> Expression:
    missing = values == ("" if values.type.kind == "string" else -1)
    return where(missing.fill_null(True), UNKNOWN, ids).fill_null(UNKNOWN).cast("int64")


def _expect(values: Expression, column: Any, *, integers: bool) -> None:
    """Refuse data of another kind than the column's dtype.

    Raises:
        ExpressionError: names the column, both kinds and the remedy.
    """
    kind = values.type.kind
    if kind not in (("int", "uint") if integers else ("string",)):
        wanted = "integers" if integers else "strings"
        raise ExpressionError(
            f"Expected {wanted} in column {column.key!r}, as its {type(column).__name__} says. "
            f"Received: {values.type}. Convert the column where the data is made, or give the "
            "feature column the data's dtype."
        )
