"""Categorical columns as functions from columns of data to ids, which `LambdaOp` traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import numpy as np

from training.errors import TrainingError
from training.feature_columns.numbers import numbers_of, width_of
from training.feature_columns.vocabulary import vocabulary_keys
from workflow.expressions.language.composed import crossed
from workflow.expressions.language.tree import Expression, where
from workflow.expressions.language.types import ExpressionError
from workflow.schema.column import Column

# The id of a value that is missing, or unknown and has no id of its own.
UNKNOWN = -1
# The ids of values, and which of the values are missing, so that their ids mean nothing.
Found = tuple[Expression, Expression]


@dataclass(frozen=True)
class Ids:
    """The computation of a categorical column.

    Attributes:
        keys: the columns of the data that it reads.
        find: makes of these columns, by their names, the ids and which of them are missing.
    """

    keys: tuple[str, ...]
    find: Callable[[Mapping[str, Expression]], Found]

    def __call__(self, columns: Mapping[str, Expression]) -> Expression:
        """The ids, int64, `UNKNOWN` where a value is missing."""
        ids, missing = self.find(columns)
        return where(missing, UNKNOWN, ids).fill_null(UNKNOWN).cast("int64")


def ids_of(column: Any, *, sparse: bool) -> Ids:
    """The ids of a categorical, bucketized or crossed column, which are TensorFlow's.

    Args:
        column: the column.
        sparse: whether TensorFlow was given sparse tensors, in which a missing value is absent, or
            dense ones, in which an empty string and the integer -1 are missing.

    Raises:
        TrainingError: a column of another kind, a vocabulary that cannot be read, or settings that
            exclude each other.
    """
    kind = type(column).__name__
    if kind == "CrossedColumn":
        return _crossed(column, sparse=sparse)
    if kind == "BucketizedColumn":
        return _bucketized(column)
    find = _OF_KIND[kind](column)

    def checked(columns: Mapping[str, Expression]) -> Found:
        values = columns[column.key]
        _expect(values, column, integers=kind.startswith("Identity") or column.dtype.is_integer)
        return find(values), _missing(values, sparse=sparse)

    return Ids((column.key,), checked)


def _identity(column: Any) -> Callable[[Expression], Expression]:
    size, default = column.number_buckets, column.default_value

    def ids(values: Expression) -> Expression:
        if default is None:
            return values
        return where((values < 0) | (values >= size), int(default), values.cast("int64"))

    return ids


def _vocabulary(column: Any) -> Callable[[Expression], Expression]:
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
        places = values.lookup(keys, missing=default)
        return where(places < 0, _bucket(values, buckets) + size, places) if buckets else places

    return ids


def _hashed(column: Any) -> Callable[[Expression], Expression]:
    return lambda values: _bucket(values, column.hash_bucket_size)


def _bucket(values: Expression, buckets: int) -> Expression:
    return (values.fingerprint64() % buckets).cast("int64")


_OF_KIND: dict[str, Callable[[Any], Callable[[Expression], Expression]]] = {
    "IdentityCategoricalColumn": _identity,
    "VocabularyListCategoricalColumn": _vocabulary,
    "VocabularyFileCategoricalColumn": _vocabulary,
    "HashedCategoricalColumn": _hashed,
}
KINDS = frozenset({*_OF_KIND, "BucketizedColumn", "CrossedColumn"})


def _missing(values: Expression, *, sparse: bool) -> Expression:
    if sparse:
        return values.is_null()
    return (values == ("" if values.type.kind == "string" else -1)).fill_null(True)


def _bucketized(column: Any) -> Ids:
    """The ids of a bucketized column, which TensorFlow computes in float32."""
    numeric = column.source_column
    if width_of(numeric) != 1:
        raise TrainingError(
            f"Expected a bucketized column of single numbers, shape (1,). Received: {column.name!r} "
            f"of shape {tuple(numeric.shape)}. Make a column of each number."
        )
    edges = np.array(column.boundaries, np.float32)
    if not all(low < high for low, high in pairwise(edges)):
        raise TrainingError(
            f"Expected boundaries of {column.name!r} that ascend, also as float32. "
            f"Received: {list(column.boundaries)!r:.200}."
        )
    numbers = numbers_of(numeric)

    def find(columns: Mapping[str, Expression]) -> Found:
        values = numbers(columns[numeric.key])
        return values.bucketize(Column(edges)), values.is_null()

    return Ids((numeric.key,), find)


def _crossed(column: Any, *, sparse: bool) -> Ids:
    """The ids of a crossed column: none where one of its values is missing."""
    leaves = list(_leaves(column))
    if not sparse:
        # TensorFlow crosses sparse tensors, such as ids of columns, before dense ones.
        leaves.sort(key=lambda key: isinstance(key, str))
    parts = [_raw(key) if isinstance(key, str) else ids_of(key, sparse=sparse) for key in leaves]

    def find(columns: Mapping[str, Expression]) -> Found:
        values, missing = zip(*(part.find(columns) for part in parts), strict=True)
        _expect_single(column, values)
        ids = crossed(values, column.hash_bucket_size, column.hash_key)
        return ids.cast("int64"), reduce(or_, missing)

    return Ids(tuple(dict.fromkeys(key for part in parts for key in part.keys)), find)


def _leaves(column: Any) -> Iterator[Any]:
    """The keys of a crossed column, and those of crossed columns among them."""
    for key in column.keys:
        if type(key).__name__ == "CrossedColumn":
            yield from _leaves(key)
        else:
            yield key


def _raw(key: str) -> Ids:
    """A column of the data in a cross, where TensorFlow casts numbers to int64."""

    def find(columns: Mapping[str, Expression]) -> Found:
        values = columns[key]
        is_float = values.type.kind == "float"
        return values.cast("int64") if is_float else values, values.is_null()

    return Ids((key,), find)


def _expect_single(column: Any, values: Sequence[Expression]) -> None:
    lists = [value.type for value in values if value.type.is_list]
    if lists:
        raise ExpressionError(
            f"Expected single values in each column of the cross {column.name!r}. Received: "
            f"{lists[0]}. TensorFlow crosses each element of a list with each other one; make a "
            "list of the pairs in the data, and a column of it."
        )


def _expect(values: Expression, column: Any, *, integers: bool) -> None:
    """Refuse data of another kind than the column's dtype."""
    kind = values.type.kind
    if kind not in (("int", "uint") if integers else ("string",)):
        expected = "integers" if integers else "strings"
        raise ExpressionError(
            f"Expected {expected} in column {column.key!r}, as its {type(column).__name__} says. "
            f"Received: {values.type}. Convert the column where the data is made, or give the "
            "feature column the data's dtype."
        )
