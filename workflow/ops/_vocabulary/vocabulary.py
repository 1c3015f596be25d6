"""Vocabularies: the values with their own ids, which Categorify learns and looks up.

A vocabulary contains the values of one column, the values that several columns share, or the
combinations in which the values of several columns occur (`_combinations`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import polars as pl

from workflow.expressions.language.tree import where
from workflow.expressions.polars.series import column_schema, polars_dtype, to_column, to_series
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, State
from workflow.ops._times import TIME
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema, are_alike_times
from workflow.schema.times import unlike_times

PADDING = 0
# Names of a vocabulary's state: learnt from data, or given by the user.
LEARNT, GIVEN = "learnt", "given"


@dataclass(frozen=True)
class Ids:
    """The layout of a vocabulary's ids: padding, null, the buckets, then its values.

    Attributes:
        buckets: the number of ids for values outside the vocabulary.
        values: the number of values in the vocabulary.
        offset: added to every id except the padding's.
    """

    buckets: int
    values: int
    offset: int = 0

    @property
    def null(self) -> int:
        """The id of null."""
        return self.offset + 1

    @property
    def bucket(self) -> int:
        """The first id for values outside the vocabulary."""
        return self.offset + 2

    @property
    def first(self) -> int:
        """The id of the first value."""
        return self.bucket + self.buckets

    @property
    def end(self) -> int:
        """The number that follows the last id."""
        return self.first + self.values


@dataclass(frozen=True)
class Vocabulary(ABC):
    """Values that have ids.

    Attributes:
        name: name of its domain, of settings for it, and in its state.
        columns: the columns with these values.
    """

    name: str
    columns: tuple[str, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of a value's keys in tables of counts."""
        return ("key0",)

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of the output columns."""

    @abstractmethod
    def check(self, columns: Schema) -> None:
        """Refuse columns whose values cannot be counted.

        Raises:
            WorkflowError: names the column, and the remedy.
        """

    @abstractmethod
    def values(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """Each value as often as it occurs, including null, as `key0`, `key1` ..."""

    @abstractmethod
    def learnt(self, table: pl.DataFrame) -> State:
        """The state, from the values in the order of their ids."""

    @abstractmethod
    def expect_fit(self, values: pl.Series, columns: Schema) -> None:
        """Refuse a user's vocabulary that cannot contain the columns' values.

        Raises:
            WorkflowError: the values are of another type.
        """

    @abstractmethod
    def state_names(self, state: State) -> list[str]:
        """The names of its state."""

    @abstractmethod
    def size(self, state: State) -> int:
        """The number of values."""

    @abstractmethod
    def features(self, columns: Features, state: State, ids: Ids) -> Features:
        """The columns of ids, without their properties."""

    @abstractmethod
    def table(self, state: State) -> pl.DataFrame:
        """The values in the order of their ids, each key under the name of its column."""


class SharedVocabulary(Vocabulary):
    """The values of a column, or of several columns together."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """One output for each column."""
        return self.columns

    def check(self, columns: Schema) -> None:
        """Accept integers, booleans, strings and lists of these; of one kind if columns share."""
        for name in self.columns:
            expect_countable(columns[name])
        require(
            self._dtype(columns) is not None,
            "Columns that share a vocabulary need values of one type. Received: "
            f"{', '.join(f'{c.name!r}, {c}' for c in self._schemas(columns))}.",
        )

    def _schemas(self, columns: Schema) -> list[ColumnSchema]:
        return [columns[name] for name in self.columns]

    def _dtype(self, columns: Schema) -> str | None:
        """The dtype that holds the values of all columns; None for int64 and uint64."""
        first, *rest = self._schemas(columns)
        if not all(are_alike_times(first.time, column.time) for column in rest):
            return None
        have = {column.dtype: column.info for column in (first, *rest)}
        if len(have) > 1 and all(info.is_integer for info in have.values()):
            wide = np.result_type(*(info.numpy for info in have.values()))
            return wide.name if wide.kind in "iu" else None
        return next(iter(have)) if len(have) == 1 else None

    def values(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """The elements of lists, and the scalars, of all columns."""
        dtype = polars_dtype(self._dtype(columns) or "")
        parts = []
        for column in self._schemas(columns):
            part = frame.select(key0=pl.col(column.name))
            # An empty list becomes null, as in cuDF, and null is not a value here.
            part = part.explode("key0", empty_as_null=True) if column.is_list else part
            parts.append(part.select(pl.col("key0").cast(dtype)))
        return parts[0] if len(parts) == 1 else pl.concat(parts)

    def learnt(self, table: pl.DataFrame) -> State:
        """The keys, in order."""
        return {f"{LEARNT}.{self.name}": to_column(table["key0"], compact_strings=True)}

    def expect_fit(self, values: pl.Series, columns: Schema) -> None:
        """Accept integers for columns of integers, and so on."""
        have, want = column_schema(self.name, values.dtype), columns[self.columns[0]]
        require(
            have.info.kind == want.info.kind or (have.info.is_integer and want.info.is_integer),
            f"The vocabulary of {self.name!r} holds {have.dtype}, and the column is {want}. "
            "Give values of the column's type.",
        )
        unlike = unlike_times(f"the vocabulary of {self.name!r}", want, have)
        require(not unlike, unlike)

    def state_names(self, state: State) -> list[str]:
        """The names of its keys, learnt or given, and of the kind of given times."""
        given_keys = f"{GIVEN}.{self.name}"
        keys = given_keys if given_keys in state else f"{LEARNT}.{self.name}"
        return [keys, *([f"{TIME}{keys}"] if f"{TIME}{keys}" in state else [])]

    def _keys(self, state: State) -> Column:
        return state[self.state_names(state)[0]]

    def size(self, state: State) -> int:
        """The number of keys."""
        return self._keys(state).rows

    def features(self, columns: Features, state: State, ids: Ids) -> Features:
        """A column of ids for each column."""
        keys, outputs = self._keys(state), {}
        for name in self.columns:
            value = columns[name].expression
            if ids.buckets == 1:
                value_id = value.lookup(keys, first=ids.first, missing=ids.bucket)
            else:
                value_id = value.lookup(keys, first=ids.first, missing=-1)
                bucket = value.hash_bucket(ids.buckets) + ids.bucket
                value_id = where(value_id < 0, bucket, value_id)
            outputs[name] = Feature.of(name, value_id.fill_null(ids.null), columns[name].schema)
        return outputs

    def table(self, state: State) -> pl.DataFrame:
        """One column of values, under the name of the vocabulary."""
        return to_series(self._keys(state), self.name).to_frame()


def expect_countable(column: ColumnSchema) -> None:
    require(
        column.info.kind != "float",
        f"Categorify needs integers, booleans or strings. Received: column {column.name!r}, {column}. "
        "Cast whole numbers with LambdaOp(lambda c: c.cast('int64')), or use Bucketize first.",
    )
