"""HashBucket: ids without a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from workflow.operator.checks import expect_known, require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.schema import Schema

from ._numbers import numbered

LARGEST = 2**31 - 1


@dataclass(frozen=True)
class HashBucket(Operator):
    """Give each value one of `num_buckets` ids by its hash, int32, without learning.

    The hash is that of `workflow.expressions.language.hashing`: a value has the same id in each
    run, on each machine and in each runtime. Values whose hashes collide share an id. Null has id
    0, which values can have too. Takes integers, booleans, strings, and lists of them, where each
    element gets an id. The column's `cardinality` is `num_buckets`.

    A model with hashed strings cannot be served by the runtimes `onnx` and `fused_onnx`, since ONNX
    has no operator for the bytes of a string.

    Args:
        num_buckets: the number of ids, from 1; one number, or a mapping from column to number.

    Raises:
        WorkflowError: an invalid number, none for a column, or a column of floats.

    Example:
        >>> ids = ["userId", "city"] >> HashBucket({"userId": 100_000, "city": 1_000})
    """

    num_buckets: int | Mapping[str, int]

    takes_ids: ClassVar[bool] = True

    def _check_settings(self) -> None:
        expect_buckets(self, self.num_buckets)

    @classmethod
    def examples(cls) -> list[Example]:
        """Every kind of column, with one number for all and with one for each."""
        ids = {"user": [7, -3, 2**60, None], "flag": [True, None, False, True]}
        texts = {"city": ["b", "", "é", None], "tags": [["x", None], [], None, ["日本", "x" * 300]]}
        lists = {"clicks": pl.Series([[1, 2], [], None, [9, None]], dtype=pl.List(pl.UInt16))}
        return [
            Example(cls(10), ids, {"user": [-(2**63)], "flag": [None]}),
            Example(cls({"user": LARGEST, "flag": 1}), ids),
            Example(cls(100), texts),
            Example(cls(100), lists),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The ids."""
        schema = Schema(feature.schema for feature in columns.values())
        expect_known("num_buckets", self.num_buckets, schema)
        made: Features = {}
        for name, feature in columns.items():
            expect_hashable("HashBucket", feature)
            buckets = buckets_of(self.num_buckets, name)
            bucket = feature.expression.hash_bucket(buckets).fill_null(0)
            made[name] = numbered(name, bucket, feature.schema, buckets)
        return made


def expect_buckets(operator: Operator, num_buckets: int | Mapping[str, int]) -> None:
    """Refuse numbers of buckets outside the range of the ids' dtype.

    Raises:
        WorkflowError: a number is not an integer from 1 to 2**31 - 1.
    """
    numbers = num_buckets.values() if isinstance(num_buckets, Mapping) else [num_buckets]
    require(
        all(1 <= n <= LARGEST for n in numbers),
        f"{operator.label} needs num_buckets as whole numbers from 1 to {LARGEST}, one for all "
        f"columns or a mapping from column to number. Received: {num_buckets!r:.200}.",
    )


def buckets_of(num_buckets: int | Mapping[str, int], name: str) -> int:
    """The number of buckets of a column.

    Raises:
        WorkflowError: a mapping lacks the column.
    """
    if not isinstance(num_buckets, Mapping):
        return num_buckets
    require(name in num_buckets, f"num_buckets is missing for column {name!r}.")
    return num_buckets[name]


def expect_hashable(operator: str, feature: Feature) -> None:
    """Refuse a column of floats, since values that print alike may differ in their last bits.

    Raises:
        WorkflowError: names the operator and the column.
    """
    require(
        feature.schema.info.kind != "float",
        f"{operator} needs integers, booleans or strings. Received: column "
        f"{feature.schema.name!r}, {feature.schema}. Cast whole numbers with "
        "LambdaOp(lambda c: c.cast('int64')), or use Bucketize first.",
    )
