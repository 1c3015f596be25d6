"""Operators whose result depends on more than one row: for training data, not for serving."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from workflow.engine.engine import filter_rows
from workflow.errors import WorkflowError
from workflow.expressions.language.tree import Expression
from workflow.expressions.program.program import Program
from workflow.schema.names import listed
from workflow.schema.schema import Schema

from .feature import Feature, Features, OfRows, Partials, State
from .operator import Operator


@dataclass(frozen=True)
class ManyRowsOperator(Operator, abstract=True):
    """An operator whose result for a row depends on other rows too."""

    row_by_row: ClassVar[bool] = False

    @abstractmethod
    def frame_schema(self, columns: Schema) -> Schema:
        """The output columns for some input columns.

        Raises:
            WorkflowError: it does not support them.
        """

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """Raise, since it has no expression.

        Raises:
            WorkflowError: always.
        """
        raise not_row_by_row(self, columns)


@dataclass(frozen=True)
class FrameOperator(ManyRowsOperator, abstract=True):
    """An operator that makes other rows: fewer, or one from many.

    Its columns are the sources of all later columns, and cannot stand beside columns of earlier
    rows.
    """

    @abstractmethod
    def transform_frame(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """Its output rows, lazily, for the whole data.

        Args:
            frame: the input columns and the dependencies, with all rows in order.
            columns: their schema.
        """

    @abstractmethod
    def needs(self, columns: Schema) -> set[str]:
        """The input columns that it reads; only names of other columns matter."""


@dataclass(frozen=True)
class RowFilter(FrameOperator, abstract=True):
    """An operator that keeps the rows that meet a condition on each row alone."""

    @abstractmethod
    def condition(self, columns: Schema) -> Program:
        """A program with one bool output for each row; rows with false or null are dropped.

        Args:
            columns: the input columns, which are the program's inputs.

        Raises:
            WorkflowError: it does not support them.
        """

    def transform_frame(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """The rows for which the condition holds."""
        return filter_rows(frame, self.condition(columns), "cpu")


@dataclass(frozen=True)
class WindowOperator(ManyRowsOperator, abstract=True):
    """An operator that computes a value for each row from this row and others: a lag, a rank.

    Its columns stand beside all other columns of the same rows.
    """

    @abstractmethod
    def window(self, columns: Schema, values: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Its columns, as Polars expressions over all rows in order.

        Args:
            columns: the input columns and the dependencies.
            values: the expression of each column.
        """


@dataclass(frozen=True)
class OutOfFoldOperator(Operator, abstract=True):
    """An operator that must not learn a row's value from the row itself when it is trained on.

    `fit_transform` assigns rows to folds and computes a row's value from the other folds;
    `transform` and the server use the state from all rows.
    """

    @abstractmethod
    def fold(self, row: Expression) -> Expression:
        """The fold of a row, int64 from 0, from the row's index in the data."""

    @abstractmethod
    def fold_partial(self, frame: pl.LazyFrame, columns: Schema, fold: str) -> Partials:
        """Partials for each fold, which the column `fold` of the frame identifies."""

    @abstractmethod
    def fold_tables_of_rows(
        self, frame: pl.LazyFrame, columns: Schema, fold: str
    ) -> Mapping[str, OfRows]:
        """All tables of `fold_partial`, as `tables_of_rows` makes them."""

    @abstractmethod
    def fold_merge(self, partials: Partials, columns: Schema, fold: str) -> Partials:
        """Combine the concatenated tables of several parts."""

    @abstractmethod
    def lower_out_of_fold(
        self, columns: Features, state: State, folds: Mapping[str, pl.DataFrame], fold: Feature
    ) -> Features:
        """The columns of `lower`, each row's from the folds that exclude it.

        Args:
            columns: the input columns.
            state: the result of `finish`.
            folds: the tables of `fold_partial`.
            fold: the fold of each row.
        """


def not_row_by_row(operator: Operator, columns: Features | Schema) -> WorkflowError:
    """The error for a workflow that is to be served but cannot be."""
    return WorkflowError(
        f"{operator.label} over {listed(columns)} needs more than one row at a time, so its output "
        "cannot be served. Put it into a separate workflow, write its output with transform_to_parquet "
        "and train and export a second workflow on that; or leave its columns out of the network."
    )
