"""TargetEncoding: replaces a category by the mean of the target in its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.operator.checks import require
from workflow.operator.feature import (
    Feature,
    Features,
    Groups,
    Keyed,
    OfRows,
    Partials,
    Selectable,
    State,
)
from workflow.operator.frame_operator import OutOfFoldOperator
from workflow.operator.operator import Example
from workflow.operator.settings import FloatDType
from workflow.schema.column import Array, Column
from workflow.schema.names import listed
from workflow.schema.schema import Schema, Tags
from workflow.schema.tags import computed_of

from . import _group_table as tables
from ._folds import fold_means, of_other_folds, smoothed
from ._grouping import Keys, grouped, summed

_FURTHER = "further."


@dataclass(frozen=True)
class TargetEncoding(OutOfFoldOperator):
    """Encode a category by the mean of the target in it, smoothed towards the mean of all rows.

    The value is (sum + p_smooth * mean) / (count + p_smooth), over the rows in the category. In
    `fit_transform`, which makes training data, a row is encoded from the rows of the other folds
    alone, so that it does not see its own target. `transform` and the server use the table of all
    rows and need no target. So train on `fit_transform` (or `fit_transform_to_parquet`); `fit`
    followed by `transform` of the same rows leaks the target into the features. Operators that
    learn from the encoding, such as a later Normalize, learn from the table of all rows.

    Groups of columns, `[["userId", "genre"], "userId"]`, are encoded together. Null is a category
    like any other; a category that did not occur in `fit` gets the mean of all rows. Rows with a
    null target do not count. The categories are integers, booleans or strings; the targets are
    numbers or booleans.

    Args:
        target: the target's name, several names, or a node of the graph.
        target_mean: the mean to smooth towards, for one target; by default it is learnt.
        kfold: the number of folds; 1 encodes from all rows, including the row itself.
        fold_seed: another seed assigns the rows to other folds: a row's fold is the hash of its
            index in the data, from 0, with this seed, modulo `kfold`; behind `Filter`, its index
            among the rows that are left. `fit_transform` evaluates a lazy frame once, so that each
            row has one index, however the frame orders its rows.
        p_smooth: the weight of the mean, as a number of rows added to each category.
        out_col: the names of the outputs, by group and within each group by target; by default
            `TE_<columns>_<target>`.
        out_dtype: "float32" or "float64".
        name_sep: separator between the columns of a group in the default names.

    Source: D. Micci-Barreca, "A Preprocessing Scheme for High-Cardinality Categorical Attributes
    in Classification and Prediction Problems", 2001; out of fold as in scikit-learn's
    `TargetEncoder.fit_transform`.

    Example:
        >>> encoded = [["userId", "genre"], "userId"] >> TargetEncoding("rating", p_smooth=10)
    """

    target: str | Sequence[str | Selectable] | Selectable
    target_mean: float | None = None
    kfold: int = 3
    fold_seed: int = 42
    p_smooth: float = 20
    out_col: str | Sequence[str] | None = None
    out_dtype: FloatDType = "float32"
    name_sep: str = "_"

    learns: ClassVar[bool] = True
    takes_groups: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True
    depends_on: ClassVar[str | None] = "target"

    def _check_settings(self) -> None:
        require(
            1 <= self.kfold <= 1000,
            f"TargetEncoding needs kfold as a whole number from 1 to 1000. Received: {self.kfold!r}.",
        )
        require(
            0 <= self.fold_seed < 2**32,
            f"TargetEncoding needs fold_seed from 0 to {2**32 - 1}. Received: {self.fold_seed!r}.",
        )
        require(
            self.p_smooth >= 0,
            f"TargetEncoding needs p_smooth as a number from 0. Received: {self.p_smooth!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """One and several columns, targets and groups; nulls everywhere."""
        rows = {
            "user": [7, 7, 9, None, 9, 7, None, 2**60],
            "city": ["a", "b", "a", None, "b", "a", "", None],
            "rating": [5.0, 1.0, None, 3.0, 4.0, 2.0, 1.0, 0.5],
            "bought": [True, False, True, None, True, False, False, True],
        }
        unseen = {"user": [1, None, 7], "city": ["zz", "a", "b"]}
        unseen |= {"rating": [None] * 3, "bought": [None] * 3}
        pair = [["user", "city"], "user"]
        both = cls(["rating", "bought"], p_smooth=2.5, out_dtype="float64")
        return [
            Example(cls("rating"), rows, unseen, left=["user", "city"]),
            Example(both, rows, unseen, left=pair),
            Example(
                cls("bought", target_mean=0.25, kfold=1, out_col="x"), rows, unseen, left=["city"]
            ),
            Example(cls("rating", p_smooth=0), rows, unseen, left=[["city", "bought", "user"]]),
        ]

    def fold(self, row: Expression) -> Expression:
        """The fold of a row from its index: hashed, since rows often come in patterns."""
        return row.hash_bucket(self.kfold, self.fold_seed)

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """Sum and count of each target, by group."""
        self._expect(columns)
        return _queries(self._rows(frame, columns))

    def tables_of_rows(self, frame: pl.LazyFrame, columns: Schema) -> Mapping[str, OfRows]:
        """All tables."""
        return _functions(self._rows(frame, columns))

    def _rows(
        self, frame: pl.LazyFrame, columns: Schema, further: Sequence[str] = ()
    ) -> dict[str, Keys]:
        """The rows of each group's table, and the names of its keys."""
        # NaN that an operator has computed is null, as in the data.
        targets = [
            pl.col(name).cast(pl.Float64).fill_nan(None).alias(f"target{n}")
            for n, name in enumerate(self.dependency_names())
        ]
        further_columns = [pl.col(name).alias(f"{_FURTHER}{name}") for name in further]
        return {
            prefix: (
                frame.select(*tables.key_columns(group), *further_columns, *targets),
                [*tables.key_names(group), *(f"{_FURTHER}{name}" for name in further)],
            )
            for prefix, group in tables.tables_of(self.groups(columns)).items()
        }

    def _expect(self, columns: Schema) -> None:
        targets = self.dependency_names()
        require(bool(targets), f"TargetEncoding needs a target. Received: {self.target!r}.")
        for name in targets:
            require(name in columns, f"The target {name!r} is not in the data to fit to.")
            column = columns[name]
            require(
                column.info.kind != "string" and not column.is_list,
                f"TargetEncoding needs targets that are numbers or booleans. Received: {name!r}, {column}.",
            )
        require(
            self.target_mean is None or len(targets) == 1,
            f"target_mean is for one target. Received: {listed(targets)}.",
        )
        tables.expect_keys("TargetEncoding", self.groups(columns), columns)

    def merge(self, partials: Partials, columns: Schema) -> Partials:
        """The sums of all parts together."""
        return tables.merge_groups(partials, self.groups(columns), summed)

    def keyed_tables(self, columns: Schema) -> Mapping[str, Keyed]:
        """All tables."""
        return tables.keyed_groups(self.groups(columns))

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The table of each group, and the mean of each target."""
        state: dict[str, Column] = {}
        for prefix, group in tables.tables_of(self.groups(columns)).items():
            keys, table = tables.keys_state(prefix, group, partials[prefix])
            state |= keys
            means = [self._mean(table, t) for t in range(len(self.dependency_names()))]
            for t, mean in enumerate(means):
                sums, counts = _arrays(table, t)
                state[f"{prefix}.target{t}"] = Column(smoothed(sums, counts, mean, self.p_smooth))
            state[f"{prefix}.means"] = Column(np.array(means))
        return state

    def _mean(self, table: pl.DataFrame, target: int) -> float:
        sums, counts = _arrays(table, target)
        # Without a single target there is no mean, but a value is required.
        mean = float(sums.sum() / counts.sum()) if counts.sum() else 0.0
        name = self.dependency_names()[target]
        require(
            math.isfinite(mean),
            f"The target {name!r} holds infinite or too large values. Clip them first.",
        )
        return mean if self.target_mean is None else float(self.target_mean)

    def lower(self, columns: Features, state: State) -> Features:
        """The encodings, from the tables of all rows."""
        groups, targets = self._checked(columns, state)
        names = iter(self._names(groups, targets))
        outputs: Features = {}
        for prefix, group in tables.tables_of(groups).items():
            row = tables.find_row(prefix, group, columns, state, state[f"{prefix}.target0"].rows)
            for t, mean in enumerate(state[f"{prefix}.means"].array.tolist()):
                value = row.gather(state[f"{prefix}.target{t}"]).fill_null(mean)
                name = next(names)
                like = computed_of(*(columns[key].schema for key in group))
                encoded = value.cast(self.out_dtype)
                outputs[name] = Feature.of(name, encoded, like, tags=(Tags.CONTINUOUS,))
        return outputs

    def _checked(self, columns: Features, state: State) -> tuple[Groups, Sequence[str]]:
        groups, targets = self.groups(columns), self.dependency_names()
        tables.expect_keys("TargetEncoding", groups, columns)
        prefixes = tables.tables_of(groups)
        means = {f"{prefix}.means" for prefix in prefixes}
        rest = {name: column for name, column in state.items() if name not in means}
        tables.check_tables(rest, prefixes, [f"target{t}" for t in range(len(targets))])
        numbers = [c for n, c in state.items() if n in means or ".target" in n]
        plain = all(
            c.valid is None and not c.is_list and c.array.dtype == np.float64 for c in numbers
        )
        sized = all(name in state and state[name].rows == len(targets) for name in means)
        require(
            plain and sized and bool(targets), "Expected float64 tables and a mean for each target."
        )
        return groups, targets

    def _names(self, groups: Groups, targets: Sequence[str]) -> list[str]:
        if self.out_col is None:
            names = ["_".join(["TE", self.name_sep.join(g), t]) for g in groups for t in targets]
        else:
            names = [self.out_col] if isinstance(self.out_col, str) else list(self.out_col)
        count = len(groups) * len(targets)
        require(
            len(names) == count == len(set(names)),
            f"TargetEncoding makes {count} columns of {len(groups)} groups and {len(targets)} targets, "
            f"which need distinct names. Received: {listed(names)}.",
        )
        return names

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> Iterator[State]:
        """The tables of the remaining groups; given names belong to all groups."""
        if self.out_col is None:
            yield tables.restrict_groups(state, self.groups(columns), names)

    def fold_partial(self, frame: pl.LazyFrame, columns: Schema, fold: str) -> Partials:
        """Sum and count of each target, by group and fold."""
        return _queries(self._rows(frame, columns, [fold]))

    def fold_tables_of_rows(
        self, frame: pl.LazyFrame, columns: Schema, fold: str
    ) -> Mapping[str, OfRows]:
        """All tables."""
        return _functions(self._rows(frame, columns, [fold]))

    def fold_merge(self, partials: Partials, columns: Schema, fold: str) -> Partials:
        """The sums of all parts together."""
        further = [f"{_FURTHER}{fold}"]
        return tables.merge_groups(
            partials, self.groups(columns), lambda keys, parts: summed([*keys, *further], parts)
        )

    def lower_out_of_fold(
        self, columns: Features, state: State, folds: Mapping[str, pl.DataFrame], fold: Feature
    ) -> Features:
        """The encodings of each row, from the rows of the other folds."""
        outputs = self.lower(columns, state)
        if self.kfold == 1:
            return outputs
        names = iter(outputs.items())
        for prefix, group in tables.tables_of(self.groups(columns)).items():
            rows = state[f"{prefix}.target0"].rows
            row = tables.find_row(prefix, group, columns, state, rows)
            cell = row * self.kfold + fold.expression
            further = f"{_FURTHER}{fold.schema.name}"
            table, of_fold = folds[prefix].drop(further), folds[prefix][further]
            places = (
                tables.rows_of(prefix, group, table, columns, state, rows),
                of_fold.to_numpy(),
            )
            for t, mean in enumerate(state[f"{prefix}.means"].array.tolist()):
                sums, counts = (
                    of_other_folds(v, *places, (rows, self.kfold)) for v in _arrays(table, t)
                )
                means = fold_means(sums, counts, self.target_mean)
                values = smoothed(sums, counts, means, self.p_smooth)
                name, feature = next(names)
                value = cell.gather(Column(values.reshape(-1))).fill_null(mean)
                outputs[name] = Feature(value.cast(self.out_dtype), feature.schema)
        return outputs


def _queries(rows: Mapping[str, Keys]) -> Partials:
    sums: dict[str, pl.LazyFrame] = {}
    for prefix, (query, keys) in rows.items():
        targets = [pl.col(name) for name in query.collect_schema() if name not in keys]
        totals = [target.sum().alias(f"sum{n}") for n, target in enumerate(targets)]
        totals += [t.count().cast(pl.Int64).alias(f"count{n}") for n, t in enumerate(targets)]
        sums[prefix] = query.group_by(keys).agg(totals)
    return sums


def _functions(rows: Mapping[str, Keys]) -> Mapping[str, OfRows]:
    return {prefix: (query, partial(_totals, keys)) for prefix, (query, keys) in rows.items()}


def _totals(keys: Sequence[str], rows: pl.DataFrame) -> pl.DataFrame:
    targets = [name for name in rows.columns if name not in keys]
    aggregates = [(name, function) for function in ("sum", "count") for name in targets]
    table = grouped(rows, keys, aggregates)
    sums = [pl.col(f"{name}_sum").fill_null(0.0).alias(f"sum{n}") for n, name in enumerate(targets)]
    counts = [pl.col(f"{name}_count").alias(f"count{n}") for n, name in enumerate(targets)]
    return table.select(*keys, *sums, *counts)


def _arrays(table: pl.DataFrame, target: int) -> tuple[Array, Array]:
    return table[f"sum{target}"].to_numpy(), table[f"count{target}"].to_numpy().astype(np.float64)
