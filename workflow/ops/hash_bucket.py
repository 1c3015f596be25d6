"""HashBucket: ids without a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import expect_known, require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.schema import Schema

from ._numbers import numbered

LARGEST = 2**31 - 1
SPLITMIX64, FARMHASH = "splitmix64", "farmhash"


@dataclass(frozen=True)
class HashBucket(Operator):
    """Give each value one of `num_buckets` ids by its hash, int32, without learning.

    A value has the same id in each run, on each machine and in each runtime. Values whose hashes
    collide share an id. Null has id 0, which values can have too. Takes integers, booleans,
    strings, and lists of them, where each element gets an id. The column's `cardinality` is
    `num_buckets`.

    A model with hashed strings cannot be served by the runtimes `onnx` and `fused_onnx`, since ONNX
    has no operator for the bytes of a string; with "farmhash" no integers either.

    Args:
        num_buckets: the number of ids, from 1; one number, or a mapping from column to number.
        hash: "splitmix64" is that of `workflow.expressions.language.hashing`. "farmhash" gives the
            ids of TensorFlow's `to_hash_bucket_fast` and `categorical_column_with_hash_bucket`, and
            of Keras' `Hashing` without a salt: FarmHash's Fingerprint64 of a string, or of an
            integer's decimal digits. It takes no booleans.

    Raises:
        WorkflowError: an invalid number, none for a column, an unknown hash, or a column of floats.

    Example:
        >>> ids = ["userId", "city"] >> HashBucket({"userId": 100_000, "city": 1_000})
        >>> as_in_tensorflow = ["city"] >> HashBucket(1_000, hash="farmhash")
    """

    num_buckets: int | Mapping[str, int]
    hash: str = SPLITMIX64

    takes_ids: ClassVar[bool] = True

    def _check_settings(self) -> None:
        expect_buckets(self, self.num_buckets)
        expect_hash(self, self.hash)

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
            Example(cls(100, hash=FARMHASH), {**texts, **lists, "user": ids["user"]}),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The ids."""
        schema = Schema(feature.schema for feature in columns.values())
        expect_known("num_buckets", self.num_buckets, schema)
        outputs: Features = {}
        for name, feature in columns.items():
            expect_hashable("HashBucket", feature)
            buckets = buckets_of(self.num_buckets, name)
            bucket = self._bucket(feature, buckets).fill_null(0)
            outputs[name] = numbered(name, bucket, feature.schema, buckets)
        return outputs

    def _bucket(self, feature: Feature, buckets: int) -> Expression:
        if self.hash == SPLITMIX64:
            return feature.expression.hash_bucket(buckets)
        require(
            feature.schema.info.kind != "bool",
            f'HashBucket(hash="{FARMHASH}") needs integers or strings. Received: column '
            f"{feature.schema.name!r}, {feature.schema}. TensorFlow hashes no booleans; cast them "
            "with LambdaOp(lambda c: c.cast('int8')).",
        )
        return feature.expression.fingerprint64() % buckets


def expect_hash(operator: Operator, name: str) -> None:
    """Refuse an unknown name of a hash.

    Raises:
        WorkflowError: names the known ones.
    """
    require(
        name in (SPLITMIX64, FARMHASH),
        f'{operator.label} needs hash as "{SPLITMIX64}" or "{FARMHASH}". Received: {name!r:.200}.',
    )


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
