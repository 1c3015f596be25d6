"""ColumnSimilarity: the similarity of two ids, by their features in a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from workflow.data.frames import polars_errors
from workflow.data.sources import as_lazy_frame, options_of
from workflow.errors import WorkflowError
from workflow.expressions.polars.series import column_schema, to_column, to_series
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Partials, State
from workflow.operator.operator import NOT_SAVED, Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import Schema, Tags
from workflow.schema.tags import computed_of

from ._sparse_features import PARTS, similarity, weighted
from ._times import expect_no_times

METRICS = ("tfidf", "cosine", "inner")


@dataclass(frozen=True)
class ColumnSimilarity(Operator):
    """Compare the two ids of each row by their features: a document and the one beside it.

    Takes pairs of columns, `[["document", "promoted"]]`, and makes `<left>_<right>_sim`, float32,
    computed in float64. It is null if an id is null or has no feature in the table, and 0 if the
    two ids share no feature.

    A table of features is a Polars or pandas frame, a dict of columns or a path to parquet; its
    columns are, in this order, the ids, the features, and the weights if they are not all 1. A list
    column of features, with one of weights beside it, holds all features of an id in one row. A
    sparse matrix of SciPy, whose rows are ids, is accepted too. The weights of a repeated feature
    are summed; a weight of 0 means no feature.

    The cost of a row is a lookup for each feature that an id can have, on the side where ids have
    fewer; at most 64.

    Args:
        left_features: the table for the first column of a pair.
        right_features: the table for the second column; by default the same table.
        metric: "inner", the inner product of the weights; "cosine", the inner product of weights
            scaled to length 1; "tfidf", the cosine of weights times log(ids / ids with the
            feature), computed for each table separately.
        storage_options: how to connect to the object stores of paths such as s3://bucket/key, as in
            `Workflow.fit`; not saved.

    Source: G. Salton and C. Buckley, "Term-weighting approaches in automatic text retrieval", 1988.

    Example:
        >>> topics = {"document": [1, 2, 2, 3], "topic": ["a", "a", "b", "b"]}
        >>> alike = [["document", "promoted"]] >> ColumnSimilarity(topics)
    """

    left_features: Any = dataclasses.field(repr=False, compare=False, metadata=NOT_SAVED)
    right_features: Any = dataclasses.field(
        default=None, repr=False, compare=False, metadata=NOT_SAVED
    )
    metric: str = "tfidf"
    storage_options: Mapping[str, Any] | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata=NOT_SAVED
    )

    learns: ClassVar[bool] = True
    takes_groups: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True

    def _check_settings(self) -> None:
        require(
            self.metric in METRICS,
            f"ColumnSimilarity needs a metric among {', '.join(METRICS)}. Received: {self.metric!r}.",
        )

    @classmethod
    def examples(cls) -> list[Example]:
        """Long and wide tables, with ids and features of each kind; unknown ids."""
        topics = {
            "id": [1, 2, 2, 3, 3],
            "topic": ["a", "a", "b", "b", "c"],
            "w": [1.0, 2, 0.5, 1, 3],
        }
        words = {"id": [1, 2, 3, None], "words": [[5, 6, 7], [6], [], [6]]}
        letters = {"key": [1, 2, None], "letters": [["a", "q"], [None, "b"], ["c"]]}
        named = {"city": ["x", "y", "x"], "word": [5, 6, 6]}
        pairs = {"left": [1, 1, 2, 3, None, 2], "right": [1, 3, 2, 2, 1, 99]}
        mixed = {"left": [1, 2, 3, None], "city": ["x", "y", "zz", "x"]}
        pair, other = [["left", "right"]], [["left", "city"]]
        both = [["left", "right"], ["right", "left"]]
        unseen = {"left": [7, -(2**63)], "right": [2, None]}
        return [
            Example(cls(topics), pairs, unseen, left=pair),
            Example(cls(topics, metric="inner"), pairs, left=both),
            Example(cls(words, named, "cosine"), mixed, left=other),
            Example(cls(letters, topics, "inner"), pairs, left=pair),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:  # noqa: ARG002
        """Nothing, since everything is in the tables."""
        self._pairs(columns)
        return {}

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:  # noqa: ARG002
        """The tables, one row for each feature of an id."""
        expect_no_times(self, columns)
        state = self._side("left", self.left_features)
        if self.right_features is not None:
            state |= self._side("right", self.right_features)
        return state

    def _side(self, side: str, data: Any) -> dict[str, Column]:
        options = options_of(data, self.storage_options)
        return _state(side, _table(f"{side}_features", data, options))

    def lower(self, columns: Features, state: State) -> Features:
        """The similarity of each pair."""
        pairs = self._pairs(columns)
        left, right = (weighted(table, self.metric) for table in _tables(state))
        outputs: Features = {}
        for first, second in pairs:
            name = f"{first}_{second}_sim"
            require(
                name not in outputs, f"ColumnSimilarity makes two columns {name!r}. Rename one."
            )
            value = similarity(columns[first].expression, columns[second].expression, left, right)
            like = computed_of(columns[first].schema, columns[second].schema)
            outputs[name] = Feature.of(name, value.cast("float32"), like, tags=(Tags.CONTINUOUS,))
        return outputs

    def _pairs(self, columns: Schema | Features) -> list[tuple[str, str]]:
        groups = self.groups(columns)
        require(
            bool(groups) and all(len(group) == 2 for group in groups),
            "ColumnSimilarity takes pairs of columns, as in [['document', 'promoted']]. "
            f"Received: {', '.join(map(str, map(list, groups)))}.",
        )
        return [(group[0], group[1]) for group in groups]

    def restrict(self, state: State, columns: Schema, names: Iterable[str]) -> Iterator[State]:
        """The tables, unless a pair loses a column."""
        rest = set(names)
        if all(rest.isdisjoint(pair) or rest.issuperset(pair) for pair in self._pairs(columns)):
            yield state

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> ColumnSimilarity:
        """The operator, with tables restored from the state, so that it can be fitted again."""
        left, right = _tables(state)
        return cls(left, right if "right.id" in state else None, **config)


def _table(
    setting: str, data: Any, storage_options: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """A table as `id`, `feature` and `weight`, with a row for each feature of an id."""
    if hasattr(data, "tocoo"):
        entries = data.tocoo()
        data = {"id": entries.row, "feature": entries.col, "weight": entries.data}
    with polars_errors(f"The table {setting} of ColumnSimilarity cannot be read"):
        table = as_lazy_frame(data, storage_options).collect()
    require(
        table.width in (2, 3),
        f"{setting} needs columns of ids, of features and perhaps of weights. "
        f"Received: {', '.join(table.columns) or 'none'}.",
    )
    table = table.rename(dict(zip(table.columns, PARTS, strict=False)))
    if isinstance(table["feature"].dtype, pl.List | pl.Array):
        with polars_errors(f"{setting} needs as many weights as features in each row"):
            table = table.explode(*table.columns[1:], empty_as_null=False)
    weight = pl.col("weight") if table.width == 3 else pl.lit(1.0)
    for name in ("id", "feature"):
        _expect_plain(setting, name, table[name].dtype)
    table = table.drop_nulls(["id", "feature"]).with_columns(weight=weight.cast(pl.Float64))
    require(
        table.height > 0 and bool(table["weight"].is_finite().fill_null(False).all()),
        f"{setting} needs rows, and weights that are finite numbers.",
    )
    return table


def _expect_plain(setting: str, name: str, dtype: pl.DataType) -> None:
    column = column_schema(name, dtype)
    require(
        column.info.kind != "float" and not column.is_list and not (column.time and name == "id"),
        f"{setting} needs every {name} as an integer, a boolean or a string. Received: {dtype}.",
    )


def _state(side: str, table: pl.DataFrame) -> dict[str, Column]:
    return {f"{side}.{part}": to_column(table[part], compact_strings=True) for part in PARTS}


def _tables(state: State) -> list[pl.DataFrame]:
    """The table of each side; the same table twice if there is one."""
    sides = ["left", "right"] if any(name.startswith("right.") for name in state) else ["left"]
    if state.keys() != {f"{side}.{part}" for side in sides for part in PARTS}:
        raise WorkflowError(f"Expected tables of features. Received: {', '.join(state) or 'none'}.")
    tables = []
    for side in sides:
        columns = {part: state[f"{side}.{part}"] for part in PARTS}
        plain = all(not c.is_list and c.valid is None for c in columns.values())
        same = {c.rows for c in columns.values()}
        require(
            plain and len(same) == 1 and same != {0}, f"Expected a plain table of {side} features."
        )
        tables.append(_table(f"{side}_features", _frame(columns)))
    return tables * (3 - len(tables))


def _frame(columns: Mapping[str, Column]) -> pl.DataFrame:
    return pl.DataFrame([to_series(column, part) for part, column in columns.items()])
