"""Categorify: values become ids, the frequent ones first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from workflow.expressions.polars.series import column_schema, to_column
from workflow.operator.checks import expect_known, expect_state, per_column, require
from workflow.operator.feature import Feature, Features, Keyed, OfRows, Partials, State
from workflow.operator.operator import NOT_SAVED, Example, Operator
from workflow.operator.settings import IntegerDType
from workflow.schema.column import Column
from workflow.schema.schema import Schema, Tags
from workflow.schema.training_data import Coverage

from ._times import series_of, time_state
from ._vocabulary.counts import (
    chosen,
    condensed,
    counts,
    coverage,
    merged_counts,
    rows_left_out,
    sorted_counts,
)
from ._vocabulary.given import given_vocabulary
from ._vocabulary.grouping import member_names, remaining, vocabularies_of
from ._vocabulary.meanings import meanings
from ._vocabulary.single_table import place_name, placed, places
from ._vocabulary.vocabulary import GIVEN, PADDING, Ids, Vocabulary

JOINT, COMBO = "joint", "combo"
# The ids before the buckets: padding and null.
RESERVED = 2


@dataclass(frozen=True)
class Categorify(Operator):
    """Give each distinct value an id.

    Ids: 0 is padding, 1 null, from 2 on `num_buckets` ids (one by default) for values outside the
        vocabulary, and then the vocabulary by descending frequency, ties by value. An embedding of
        the column needs as many rows as the column's property `cardinality`. Its property `domain`
        has the smallest and the largest id, and the vocabulary's name; a second vocabulary of the
        same columns in a workflow gets a number: `city_2`.

    Columns in a group share a vocabulary, as in `[["sender", "receiver"]] >> Categorify()`; with
    `encode_type="combo"` they become one column, with an id for each combination of their values. The
    vocabulary of a group is named after its columns, here `sender_receiver`; that of a single column
    after the column.

    Args:
        freq_threshold: leave out of the vocabulary values that occur less often.
        max_size: the largest cardinality, including the ids before the vocabulary; 0 for no limit.
            With a `freq_threshold` too, infrequent values are left out first, then the least
            frequent of the others. At least 4; with `num_buckets` at least `num_buckets + 2`, which
            leaves no vocabulary: every value is hashed.
        num_buckets: the number of ids for values outside the vocabulary, which the hash of
            `HashBucket` distributes; for a combination it is the hash of the sum of its values'
            hashes, as in `HashedCross`, but without nulls.
        vocabs: vocabularies by name, which are then not learnt: a list, an array, a series, or the
            path of a parquet file. Ids follow the given order; `freq_threshold` does not apply.
        encode_type: the meaning of a group of columns: "joint" or "combo".
        name_sep: separator between the names of a group.
        single_table: all vocabularies share one embedding table: the ids of the second follow those
            of the first, and so on; only padding is 0 for all. The cardinality is then the table's.
        split_out: count values in this many parts, by their hash, one after another. For
            vocabularies that do not fit in memory while they are counted; the data is read once for
            each part. Not for `engine="gpu"`.
        dtype: the ids' dtype, an integer type.

    The first three and `split_out` are one number for all vocabularies, or a mapping name -> number.

    Takes integers, booleans, strings, and, except in combinations, lists of them. A null element of
    a list is 1; an empty or null list stays empty. A combination is null if all its values are;
    else null counts as a value, and comes first among ties.

    Example:
        >>> from workflow import Workflow
        >>> workflow = Workflow(["city"] >> Categorify(max_size=4)).fit({"city": ["b", "a", "a"]})
        >>> workflow.transform({"city": ["a", "b", None]}).collect()["city"].to_list()
        [3, 2, 1]
    """

    freq_threshold: int | Mapping[str, int] = 0
    max_size: int | Mapping[str, int] = 0
    num_buckets: int | Mapping[str, int] | None = None
    vocabs: Mapping[str, Any] | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata=NOT_SAVED
    )
    encode_type: str = JOINT
    name_sep: str = "_"
    single_table: bool = False
    split_out: int | Mapping[str, int] = 1
    dtype: IntegerDType = "int64"

    learns: ClassVar[bool] = True
    has_vocabularies: ClassVar[bool] = True
    takes_groups: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True

    def _check_settings(self) -> None:
        self._expect_numbers()
        require(
            self.encode_type in (JOINT, COMBO),
            f'Categorify needs encode_type "{JOINT}" or "{COMBO}". Received: {self.encode_type!r}.',
        )
        vocabularies = {n: given_vocabulary(n, values) for n, values in (self.vocabs or {}).items()}
        object.__setattr__(self, "vocabs", vocabularies)

    def _expect_numbers(self) -> None:
        least = {"freq_threshold": 0, "max_size": 0, "num_buckets": 1, "split_out": 1}
        for setting, lowest in least.items():
            value = getattr(self, setting)
            numbers = value.values() if isinstance(value, Mapping) else [value]
            require(
                value is None or all(n >= lowest for n in numbers),
                f"Categorify needs {setting} as whole numbers from {lowest}. Received: {value!r}.",
            )

    @classmethod
    def examples(cls) -> list[Example]:
        """Ids of every kind of column, with every setting."""
        ids = {"user": [7, 7, 7, None, -3, 2**60], "city": ["b", "a", "b", "", "é", None]}
        unseen = {"user": [8, -(2**63), 7, None], "city": ["zz", "B", "a", None]}
        genres = {
            "genres": [["x", "y"], [], None, ["x", None], ["z"]],
            "clicks": pl.Series([[1, 2], [2], [], None, [9, None]], dtype=pl.List(pl.UInt16)),
        }
        flags = {"flag": [True, None, True, False], "code": pl.Series([5, 5, 9, 1], dtype=pl.UInt8)}
        large = pl.Series([2**64 - 1, 0, 2**64 - 1, None], dtype=pl.UInt64)
        mail = {"from": ["a", "b", None, "b"], "to": [["b"], ["c", None], [], ["a", "c"]]}
        return [
            Example(cls(), ids, unseen),
            Example(cls(freq_threshold=2, dtype="int32"), ids, unseen),
            Example(cls(max_size={"user": 4}, freq_threshold={"city": 2}), ids, unseen),
            Example(cls(), genres, {"genres": [["q", None, "x"]], "clicks": [[77, 2]]}),
            Example(cls(dtype="int8"), flags, {"flag": [None], "code": [0]}),
            Example(cls(), {"large": large}, {"large": [2**63, 1]}),
            Example(cls(num_buckets={"user": 3}, split_out=2), ids, unseen),
            Example(cls(num_buckets=5, freq_threshold=2), ids, unseen),
            Example(cls(num_buckets=4, max_size=6), flags | {"user": [3, 3, None, -1]}),
            Example(cls(vocabs={"user": [5, 7]}, single_table=True), ids, unseen),
            Example(cls(), mail, {"from": ["c"], "to": [["q"]]}, left=[["from", "to"]]),
            Example(cls(encode_type=COMBO), ids, unseen, left=[["user", "city"], "city"]),
            Example(cls(encode_type=COMBO, num_buckets=3), flags, left=[["flag", "code"]]),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """Counts of each value."""
        vocabularies = self._vocabularies(columns)
        self._expect_settings(vocabularies, columns)
        return {
            v.name: counts(v.values(frame, columns), self._parts(v.name))
            for v in vocabularies
            if v.name not in self._given
        }

    def counted_lists(self, columns: Schema) -> Mapping[str, tuple[str, str]]:
        """Columns that do not share a vocabulary."""
        return {
            v.name: (v.name, "key0")
            for v in self._vocabularies(columns)
            if v.columns == (v.name,) and v.name not in self._given and columns[v.name].is_list
        }

    def tables_of_rows(self, frame: pl.LazyFrame, columns: Schema) -> Mapping[str, OfRows]:
        """Counts of integers that one column alone has."""
        return {
            v.name: (frame.select(v.name), sorted_counts)
            for v in self._vocabularies(columns)
            if v.columns == v.outputs == (v.name,)
            and v.name not in self._given
            and self._parts(v.name) == 1
            and columns[v.name].info.is_integer
            and not columns[v.name].is_list
        }

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The counts of all parts together."""
        return {name: merged_counts(t, self._parts(name)) for name, t in partials.items()}

    def keyed_tables(self, columns: Schema) -> Mapping[str, Keyed]:
        """The counts of all vocabularies that are not given."""
        return {
            v.name: Keyed(v.key_names, self._parts(v.name))
            for v in self._vocabularies(columns)
            if v.name not in self._given
        }

    def condense(
        self, partials: Mapping[str, pl.DataFrame], columns: Schema
    ) -> Mapping[str, pl.DataFrame]:
        """The values that may get an id, and the number of rows of the others."""
        tables: dict[str, pl.DataFrame] = {}
        for name in (v.name for v in self._vocabularies(columns) if v.name in partials):
            least = per_column(self.freq_threshold, name, 0)
            tables |= condensed(name, partials[name], least, self._most(name))
        return tables

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The vocabularies, and for a single table the place of each vocabulary in it."""
        state: dict[str, Column] = {}
        vocabularies = self._vocabularies(columns)
        for vocabulary in vocabularies:
            name = vocabulary.name
            if name in self._given:
                keys = f"{GIVEN}.{name}"
                state[keys] = to_column(self._given[name], compact_strings=True)
                state |= time_state({keys: column_schema(name, self._given[name].dtype).time})
            else:
                least = per_column(self.freq_threshold, name, 0)
                state |= vocabulary.learnt(chosen(partials[name], least, self._most(name)))
        ids = {v.name: Ids(self._buckets(v.name), v.size(state)) for v in vocabularies}
        return {**state, **places(ids)} if self.single_table else state

    def coverages(
        self, partials: Mapping[str, pl.DataFrame], columns: Schema
    ) -> Mapping[str, Coverage]:
        """The coverage of each column that is not part of a combination."""
        results: dict[str, Coverage] = {}
        for vocabulary in self._vocabularies(columns):
            name = vocabulary.name
            if name in self._given:
                result = Coverage(len(self._given[name]))
            else:
                least = per_column(self.freq_threshold, name, 0)
                further_rows = rows_left_out(name, partials)
                result = coverage(partials[name], least, self._most(name), further_rows)
            outputs = set(vocabulary.outputs)
            results |= {column: result for column in vocabulary.columns if column in outputs}
        return results

    def lower(self, columns: Features, state: State) -> Features:
        """The ids."""
        vocabularies = self._vocabularies(columns, state)
        expect_state(state, self._state_names(vocabularies, state))
        outputs: Features = {}
        for vocabulary in vocabularies:
            ids, cardinality = self._ids(vocabulary, state)
            require(
                ids.end - 1 <= np.iinfo(self.dtype).max,
                f"The ids of {vocabulary.name!r} go up to {ids.end - 1}, which {self.dtype} does not "
                "hold. Use a wider dtype, or limit the ids with max_size.",
            )
            least = ids.null if self.single_table else PADDING
            domain = {"min": least, "max": ids.end - 1, "name": vocabulary.name}
            for name, feature in vocabulary.features(columns, state, ids).items():
                outputs[name] = Feature.of(
                    name,
                    feature.expression.cast(self.dtype),
                    feature.schema,
                    tags=(Tags.CATEGORICAL,),
                    properties={"cardinality": cardinality, "domain": domain},
                )
        return outputs

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> Iterator[State]:
        """The vocabularies of the remaining columns; combinations that lose a column are dropped."""
        entries: dict[str, Column] = {}
        for vocabulary, members in remaining(self._vocabularies(columns, state), state, set(names)):
            entry_names = self._state_names([vocabulary], state)
            entries |= {name: state[name] for name in entry_names if name in state}
            entries |= members
        yield entries

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> Categorify:
        """The operator, with given vocabularies restored, so that it can be fitted again."""
        names = [name for name in state if name.startswith(f"{GIVEN}.")]
        vocabs = {name.removeprefix(f"{GIVEN}."): series_of(name, state) for name in names}
        return cls(vocabs=vocabs, **config)

    def meanings(self, output: str, columns: Features, state: State) -> pl.DataFrame:
        """Meaning of each id of an output column; see `Workflow.reverse_mapping`."""
        vocabularies = self._vocabularies(columns, state)
        vocabulary = next(v for v in vocabularies if output in v.outputs)
        times = {name: columns[name].schema.time for name in vocabulary.columns}
        times.setdefault(vocabulary.name, times[vocabulary.columns[0]])
        return meanings(vocabulary, self._ids(vocabulary, state)[0], state, times)

    @property
    def _given(self) -> Mapping[str, pl.Series]:
        return self.vocabs or {}

    def _vocabularies(self, columns: Iterable[str], state: State | None = None) -> list[Vocabulary]:
        combine = self.encode_type == COMBO
        return vocabularies_of(self.groups(columns), state or {}, self.name_sep, combine=combine)

    def _expect_settings(self, vocabularies: list[Vocabulary], columns: Schema) -> None:
        names = [vocabulary.name for vocabulary in vocabularies]
        for setting in ("freq_threshold", "max_size", "num_buckets", "split_out", "vocabs"):
            expect_known(setting, getattr(self, setting), names)
        for vocabulary in vocabularies:
            vocabulary.check(columns)
            most, values = self._most(vocabulary.name), self._given.get(vocabulary.name)
            if values is not None:
                vocabulary.expect_fit(values, columns)
                require(
                    most is None or len(values) <= most,
                    f"The vocabulary of {vocabulary.name!r} has {len(values)} values, and max_size "
                    f"leaves room for {most}.",
                )

    def groups_on_host(self, columns: Schema) -> bool:  # noqa: ARG002
        """Whether it counts in parts, one query after another."""
        setting = self.split_out
        return any(n > 1 for n in (setting.values() if isinstance(setting, Mapping) else [setting]))

    def _parts(self, name: str) -> int:
        return int(per_column(self.split_out, name, 1))

    def _buckets(self, name: str) -> int:
        return int(per_column(self.num_buckets, name, None) or 1)

    def _most(self, name: str) -> int | None:
        """The most values that a vocabulary may have; None for no limit."""
        size, buckets = per_column(self.max_size, name, 0), self._buckets(name)
        hashed = per_column(self.num_buckets, name, None) is not None
        least = RESERVED + buckets + (not hashed)
        value = "" if hashed else " and, without num_buckets, one value of it"
        require(
            size == 0 or size >= least,
            f"max_size includes the {RESERVED + buckets} ids before the vocabulary{value}, so it is at "
            f"least {least} for {name!r}. Received: {size}.",
        )
        return size - RESERVED - buckets if size else None

    def _ids(self, vocabulary: Vocabulary, state: State) -> tuple[Ids, int]:
        """A vocabulary's ids, and the number of rows of the table that they index."""
        ids = Ids(self._buckets(vocabulary.name), vocabulary.size(state))
        return placed(ids, vocabulary.name, state) if self.single_table else (ids, ids.end)

    def _state_names(self, vocabularies: list[Vocabulary], state: State) -> list[str]:
        names = [name for v in vocabularies for name in v.state_names(state)]
        names += [place_name(v.name) for v in vocabularies] if self.single_table else []
        return names + member_names(vocabularies, state)
