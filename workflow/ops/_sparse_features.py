"""Inner products of sparse rows, by expressions over lookup and gather.

One row is split into its first feature, its second and so on, each with its weight. The other row's
entries are one table with the keys row * features + feature. So the product is a sum of as many
lookups as the first row can have features.

scipy.sparse (115 MB) could only compute the weights of `weighted`: served rows have no SciPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression
from workflow.expressions.polars.series import to_column
from workflow.operator.checks import require
from workflow.schema.column import Array, Column

PARTS = ("id", "feature", "weight")
MOST_FEATURES = 64


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix, with entries sorted by row and then by feature.

    Attributes:
        ids: the id of each row, in order.
        features: the features that occur, in order.
        row: the row of each entry.
        feature: the index of each entry's feature among `features`.
        weight: the weight of each entry.
    """

    ids: pl.Series
    features: pl.Series
    row: Array
    feature: Array
    weight: Array

    @property
    def place(self) -> Array:
        """The index of each entry within its row, from 0."""
        starts = np.flatnonzero(np.diff(self.row, prepend=-1))
        return np.arange(len(self.row)) - np.repeat(starts, np.diff(starts, append=len(self.row)))

    @property
    def longest(self) -> int:
        """The greatest number of entries in a row."""
        return int(self.place.max()) + 1


def weighted(table: pl.DataFrame, metric: str) -> Sparse:
    """The weights whose inner product is the metric.

    Args:
        table: `id`, `feature` and `weight`.
        metric: "inner", "cosine" or "tfidf".
    """
    # In a fixed order, so that sums are equal wherever they are computed.
    entries = (
        table.sort("id", "feature", maintain_order=True)
        .group_by("id", "feature", maintain_order=True)
        .agg(pl.col("weight").sum())
        .filter(pl.col("weight") != 0)
    )
    require(entries.height > 0, "ColumnSimilarity needs a weight other than 0. Received: none.")
    if metric == "tfidf":
        having = pl.len().over("feature").cast(pl.Float64)
        entries = entries.with_columns(pl.col("weight") * (pl.col("id").n_unique() / having).log())
    if metric != "inner":
        length = (pl.col("weight") ** 2).sum().over("id").sqrt()
        entries = entries.with_columns(
            pl.when(length > 0).then(pl.col("weight") / length).otherwise(0)
        )
    ids, features = (entries[name].unique().sort() for name in ("id", "feature"))
    row, feature = (
        (entries[name].rank("dense") - 1).cast(pl.Int64).to_numpy() for name in ("id", "feature")
    )
    return Sparse(ids, features, row, feature, entries["weight"].to_numpy())


def similarity(first: Expression, second: Expression, left: Sparse, right: Sparse) -> Expression:
    """The inner product of the rows of two ids, float64; null if an id has no row.

    Args:
        first: ids of rows of `left`.
        second: ids of rows of `right`.
        left: a matrix.
        right: another, or the same.
    """
    if right.longest < left.longest:
        first, second, left, right = second, first, right, left
    require(
        left.longest <= MOST_FEATURES,
        f"ColumnSimilarity takes up to {MOST_FEATURES} features of an id on at least one side. "
        f"Received: {left.longest}. Keep the features with the largest weights.",
    )
    row = first.lookup(_keys(left))
    stride = len(right.features) + 1
    base = second.lookup(_keys(right)).gather(Column(np.arange(len(right.ids)) * stride))
    # Features are numbered as in the first matrix, from 1; 0 stands for no feature.
    numbers = _places(left.features, right.features) + 1
    terms = [_term(row, base, place, left, right, numbers) for place in range(left.longest)]
    return reduce(add, terms)


def _term(
    row: Expression, base: Expression, place: int, left: Sparse, right: Sparse, numbers: Array
) -> Expression:
    """Products of the features at one position: weight times weight, 0 if the other row lacks it."""
    here = left.place == place
    feature = np.zeros(len(left.ids), np.int64)
    feature[left.row[here]] = numbers[left.feature[here]]
    weight = np.zeros(len(left.ids))
    weight[left.row[here]] = left.weight[here]
    # Only entries of the other matrix whose features can occur here.
    met = np.isin(right.feature + 1, feature)
    keys = right.row[met] * (len(right.features) + 1) + right.feature[met] + 1
    entry = (row.gather(Column(feature)) + base).lookup(Column(keys), missing=len(keys))
    other = np.append(right.weight[met], 0.0)
    return row.gather(Column(weight)) * entry.gather(Column(other))


def _places(values: pl.Series, among: pl.Series) -> Array:
    """The index of each value among others, -1 for a value that is missing there."""
    if values.dtype != among.dtype:
        both = {values.dtype.is_integer(), among.dtype.is_integer()}
        require(
            both == {True},
            f"Features on both sides need one type. Received: {values.dtype} and {among.dtype}.",
        )
        values, among = values.cast(pl.Int128), among.cast(pl.Int128)
    matches = values.to_frame("value").join(
        among.to_frame("value").with_row_index("place"),
        on="value",
        how="left",
        maintain_order="left",
    )
    return matches["place"].cast(pl.Int64).fill_null(-1).to_numpy()


def _keys(matrix: Sparse) -> Column:
    return to_column(matrix.ids, compact_strings=True)
