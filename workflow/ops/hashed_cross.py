"""HashedCross: one id for the combination of several columns' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Example, Operator
from workflow.schema.tags import computed_of

from ._numbers import numbered
from .hash_bucket import buckets_of, expect_buckets, expect_hashable

# The contribution of null; hashes of values are not negative.
_NULL = -1


@dataclass(frozen=True)
class HashedCross(Operator):
    """Give each combination of the values of several columns one of `num_buckets` ids, int32.

    The columns on the left are in groups, and each group makes one column: `[["a", "b"]]` makes
    `a_X_b`. Without groups, as in `["a", "b"]`, all of them are crossed. The values are hashed as
    in `HashBucket`, with their position in the group as the seed, so that (1, 2) and (2, 1) are
    different combinations, and so are (1, 1) and (2, 2). Null counts as a value, with hash -1. The
    id is the sum of the hashes as an int64 with overflow, modulo `num_buckets`, which is the
    column's `cardinality`.

    A model with hashed strings cannot be served by the runtimes `onnx` and `fused_onnx`, since ONNX
    has no operator for the bytes of a string.

    Args:
        num_buckets: the number of ids, from 1; one number, or a mapping from the name of a new
            column to number.

    Raises:
        WorkflowError: an invalid number, or none for a group, a group of one column, or a column of
            lists or floats.

    Example:
        >>> crossed = [["city", "device"]] >> HashedCross(10_000)
    """

    num_buckets: int | Mapping[str, int]

    takes_groups: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True

    def _check_settings(self) -> None:
        expect_buckets(self, self.num_buckets)

    @classmethod
    def examples(cls) -> list[Example]:
        """Two and three columns of every kind, and two groups."""
        ids = {"user": [7, -3, 2, None, None], "flag": [True, None, False, True, None]}
        texts = {"city": ["b", "", "é", None, "b"]}
        return [
            Example(cls(10), ids, {"user": [-(2**63)], "flag": [None]}, [["user", "flag"]]),
            Example(cls(1000), {**ids, **texts}, left=[["city", "flag", "user"]]),
            Example(
                cls({"user_X_flag": 5, "flag_X_user": 2**31 - 1}),
                ids,
                left=[["user", "flag"], ["flag", "user"]],
            ),
        ]

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """One column of ids for each group."""
        own = self.groups(columns)
        if all(len(group) == 1 for group in own):
            own = (tuple(name for (name,) in own),)
        groups = {"_X_".join(group): group for group in own}
        named = self.num_buckets if isinstance(self.num_buckets, Mapping) else groups
        unknown = [name for name in named if name not in groups]
        require(
            not unknown,
            f"num_buckets is set for {', '.join(map(repr, unknown))}. "
            f"The new columns are: {', '.join(groups)}.",
        )
        made = {}
        for name, group in groups.items():
            require(
                len(group) > 1,
                f"HashedCross needs groups of columns, as in [['a', 'b']] >> HashedCross(1000). "
                f"Received: column {group[0]!r} alone.",
            )
            made[name] = self._cross(name, [columns[column] for column in group])
        return made

    def _cross(self, name: str, features: list[Feature]) -> Feature:
        for feature in features:
            expect_hashable("HashedCross", feature)
            require(
                not feature.schema.is_list,
                f"HashedCross needs scalars. Received: column {feature.schema.name!r}, "
                f"{feature.schema}.",
            )
        buckets = buckets_of(self.num_buckets, name)
        hashes = [f.expression.hash(place).fill_null(_NULL) for place, f in enumerate(features)]
        # The sum may overflow. Each position has its own hash, so that the order matters.
        like = computed_of(*(feature.schema for feature in features))
        return numbered(name, reduce(add, hashes) % buckets, like, buckets)
