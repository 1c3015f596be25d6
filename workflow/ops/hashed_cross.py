"""HashedCross: one id for the combination of several columns' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

from workflow.expressions.language.composed import crossed
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.names import listed
from workflow.schema.tags import computed_of

from ._numbers import numbered
from .hash_bucket import (
    FARMHASH,
    SPLITMIX64,
    buckets_of,
    expect_buckets,
    expect_hash,
    expect_hashable,
)

# The contribution of null; hashes of values are not negative.
_NULL = -1


@dataclass(frozen=True)
class HashedCross(Operator):
    """Give each combination of the values of several columns one of `num_buckets` ids, int32.

    The columns on the left are in groups, and each group makes one column: `[["a", "b"]]` makes
    `a_X_b`. Without groups, as in `["a", "b"]`, all of them are crossed. The order of a group
    matters: (1, 2) and (2, 1) are different combinations. The column's `cardinality` is
    `num_buckets`. A group with a list makes a list: each element crossed with the row's scalars.

    With the hash "splitmix64" the values are hashed as in `HashBucket`, with their position in the
    group as the seed; null counts as a value, with hash -1. The id is the sum of the hashes as an
    int64 with overflow, modulo `num_buckets`.

    With "farmhash" the ids are those of TensorFlow's `sparse.cross_hashed` and `crossed_column`,
    and of Keras' `HashedCrossing`: FarmHash's fingerprints of strings, and integers and booleans as
    they are, are joined one after the other. A combination with a null has id 0, which other
    combinations can have too; TensorFlow has no null.

    A model with hashed strings cannot be served by the runtimes `onnx` and `fused_onnx`, since ONNX
    has no operator for the bytes of a string.

    Args:
        num_buckets: the number of ids, from 1; one number, or a mapping from the name of a new
            column to number.
        hash: "splitmix64" or "farmhash".
        hash_key: with "farmhash" the key of TensorFlow's `crossed_column`, 64 bits as an int64;
            None for TensorFlow's default.

    Raises:
        WorkflowError: an invalid number, or none for a group, an unknown hash, a key of
            "splitmix64", a group of one column, one of two lists, or a column of floats.

    Example:
        >>> crossed = [["city", "device"]] >> HashedCross(10_000)
        >>> as_in_tensorflow = [["city", "device"]] >> HashedCross(10_000, hash="farmhash")
    """

    num_buckets: int | Mapping[str, int]
    hash: str = SPLITMIX64
    hash_key: int | None = None

    takes_groups: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True

    def _check_settings(self) -> None:
        expect_buckets(self, self.num_buckets)
        expect_hash(self, self.hash)
        require(
            self.hash_key is None or (self.hash == FARMHASH and -(2**63) <= self.hash_key < 2**63),
            f'HashedCross needs hash_key as an int64, and hash="{FARMHASH}" beside it. '
            f"Received: hash_key={self.hash_key}, hash={self.hash!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Two and three columns of every kind, and two groups."""
        ids = {"user": [7, -3, 2, None, None], "flag": [True, None, False, True, None]}
        texts = {"city": ["b", "", "é", None, "b"]}
        lists = {"tags": [["a", None], [], None, ["b", "a"], ["é"]]}
        return [
            Example(cls(10), ids, {"user": [-(2**63)], "flag": [None]}, [["user", "flag"]]),
            Example(cls(1000), {**ids, **texts}, left=[["city", "flag", "user"]]),
            Example(
                cls(1000, hash=FARMHASH, hash_key=-7),
                {**ids, **texts},
                left=[["city", "flag", "user"]],
            ),
            Example(
                cls(1000), {**ids, **texts, **lists}, left=[["user", "tags"], ["tags", "city"]]
            ),
            Example(cls(1000, hash=FARMHASH), {**ids, **lists}, left=[["tags", "flag", "user"]]),
            Example(
                cls({"user_X_flag": 5, "flag_X_user": 2**31 - 1}),
                ids,
                left=[["user", "flag"], ["flag", "user"]],
            ),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """One column of ids for each group."""
        column_groups = self.groups(columns)
        if all(len(group) == 1 for group in column_groups):
            column_groups = (tuple(name for (name,) in column_groups),)
        groups = {"_X_".join(group): group for group in column_groups}
        named = self.num_buckets if isinstance(self.num_buckets, Mapping) else groups
        unknown = [name for name in named if name not in groups]
        require(
            not unknown,
            f"num_buckets is set for {listed(map(repr, unknown))}. "
            f"The new columns are: {listed(groups)}.",
        )
        outputs = {}
        for name, group in groups.items():
            require(
                len(group) > 1,
                f"HashedCross needs groups of columns, as in [['a', 'b']] >> HashedCross(1000). "
                f"Received: column {group[0]!r} alone.",
            )
            outputs[name] = self._cross(name, [columns[column] for column in group])
        return outputs

    def _cross(self, name: str, features: list[Feature]) -> Feature:
        for feature in features:
            expect_hashable("HashedCross", feature)
        lists = {f.expression.root: f.schema.name for f in features if f.schema.is_list}
        require(
            len(lists) < 2,
            "HashedCross crosses the elements of one list with scalars. Received: the lists "
            f"{' and '.join(map(repr, lists.values()))}.",
        )
        buckets = buckets_of(self.num_buckets, name)
        like = computed_of(*(feature.schema for feature in features))
        values = [feature.expression for feature in features]
        if self.hash == FARMHASH:
            ids = crossed(values, buckets, self.hash_key).fill_null(0)
            return numbered(name, ids, like, buckets)
        hashes = [value.hash(place).fill_null(_NULL) for place, value in enumerate(values)]
        # The sum may overflow. Each position has its own hash, so that the order matters.
        return numbered(name, reduce(add, hashes) % buckets, like, buckets)
