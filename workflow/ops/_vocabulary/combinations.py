"""Vocabularies of combinations: tuples of values that occur together in several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression, where
from workflow.expressions.polars.series import to_series
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.ops import _group_table as tables
from workflow.schema.column import Array, Column
from workflow.schema.schema import Schema
from workflow.schema.tags import computed_of

from .vocabulary import Ids, Vocabulary, expect_countable


class CombinedVocabulary(Vocabulary):
    """The combinations of values that occur in several columns; null counts as a value.

    A combination is null only if all of its values are. It is found by the positions of its values,
    see `_group_table`.
    """

    prefix: ClassVar[str] = "combined"

    @property
    def _prefix(self) -> str:
        return f"{self.prefix}.{self.name}"

    @property
    def key_names(self) -> tuple[str, ...]:
        """One key for each column."""
        return tuple(tables.key_names(self.columns))

    @property
    def outputs(self) -> tuple[str, ...]:
        """One column with the name of the vocabulary."""
        return (self.name,)

    def check(self, columns: Schema) -> None:
        """Accept integers, booleans and strings."""
        for name in self.columns:
            expect_countable(columns[name])
            require(
                not columns[name].is_list,
                f"Combinations need one value in each row. Received: column {name!r}, {columns[name]}. "
                'Encode lists separately, or use encode_type="joint".',
            )

    def values(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:  # noqa: ARG002
        """The values side by side."""
        return frame.select(tables.key_columns(self.columns))

    def learnt(self, table: pl.DataFrame) -> State:
        """The keys of each column, and the combinations in the order of their ids."""
        state, rows = tables.keys_state(self._prefix, self.columns, table.with_row_index("id"))
        last = tables.key_state_names(self._prefix, self.columns)[-1]
        order = np.argsort(rows["id"].to_numpy(), kind="stable")
        return {**state, last: Column(state[last].array[order])}

    def expect_fit(self, values: pl.Series, columns: Schema) -> None:  # noqa: ARG002
        """Refuse a given vocabulary, since combinations are always learnt."""
        require(
            False,
            f"A vocabulary of combinations is learnt. Received: vocabs={{{self.name!r}: ...}}.",
        )

    def state_names(self, state: State) -> list[str]:  # noqa: ARG002
        """The keys of each column, and the combinations."""
        return tables.key_state_names(self._prefix, self.columns)

    def size(self, state: State) -> int:
        """The number of combinations."""
        return state[tables.key_state_names(self._prefix, self.columns)[-1]].rows

    def features(self, columns: Features, state: State, ids: Ids) -> Features:
        """One column of ids with the name of the vocabulary."""
        group = [columns[name] for name in self.columns]
        row = tables.find_row(self._prefix, self.columns, columns, state, self.size(state))
        combination_id = where(row < 0, self._bucket(group, ids), row + ids.first)
        absent = group[0].expression.is_null()
        for feature in group[1:]:
            absent = absent & feature.expression.is_null()
        combination_id = where(absent, ids.null, combination_id)
        like = computed_of(*(feature.schema for feature in group))
        return {self.name: Feature.of(self.name, combination_id, like)}

    def _bucket(self, group: Sequence[Feature], ids: Ids) -> Expression | int:
        if ids.buckets == 1:
            return ids.bucket
        # A different seed for each position, so that (a, b) and (b, a) differ; null adds nothing.
        total, *hashes = (
            feature.expression.hash(seed).fill_null(0) for seed, feature in enumerate(group)
        )
        for other in hashes:
            total = total + other
        return total.hash_bucket(ids.buckets) + ids.bucket

    def table(self, state: State) -> pl.DataFrame:
        """A column for each key."""
        names = tables.key_names(self.columns)
        keys = [state[f"{self._prefix}.{name}"] for name in names]
        combined = state[f"{self._prefix}.{names[-1]}.pairs"].array
        places: list[Array] = []
        for number in range(len(names) - 1, 0, -1):
            row, place = np.divmod(combined, keys[number].rows + tables.FIRST)
            places.insert(0, place)
            if number > 1:
                pairs = state[f"{self._prefix}.{names[number - 1]}.pairs"].array
                combined = pairs[row - tables.FIRST]
        places.insert(0, row)
        return pl.DataFrame(
            {
                name: _gathered(to_series(key), place - tables.FIRST)
                for key, name, place in zip(keys, self.columns, places, strict=True)
            }
        )


def _gathered(values: pl.Series, rows: Array) -> pl.Series:
    """The values at some rows; null where a row is negative."""
    row = pl.Series(rows)
    frame = pl.select(pl.when(row >= 0).then(row).alias("row"))
    return values.gather(frame["row"])
