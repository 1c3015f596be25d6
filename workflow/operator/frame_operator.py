"""Operators whose result depends on more than one row: fine in training, not to be served."""

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
from workflow.schema.schema import Schema

from .feature import Feature, Features, State
from .operator import Operator


@dataclass(frozen=True)
class ManyRowsOperator(Operator, abstract=True):
    """An operator of which no row's result depends on this row alone."""

    row_by_row: ClassVar[bool] = False

    @abstractmethod
    def frame_schema(self, columns: Schema) -> Schema:
        """The columns that it makes of some columns.

        Raises:
            WorkflowError: it does not take them.
        """

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """There is no expression for it.

        Raises:
            WorkflowError: always.
        """
        raise not_row_by_row(self, columns)


@dataclass(frozen=True)
class FrameOperator(ManyRowsOperator, abstract=True):
    """An operator that makes other rows: fewer, or one for many.

    Its columns are the sources of all that comes after, and cannot stand beside columns of the
    rows before it.
    """

    @abstractmethod
    def transform_frame(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """The rows that it makes, lazily, of the whole data.

        Args:
            frame: the input columns and the dependencies, of all rows in order.
            columns: their schema.
        """

    @abstractmethod
    def needs(self, columns: Schema) -> set[str]:
        """The input columns without which it cannot work, the names of others only passing through."""


@dataclass(frozen=True)
class RowFilter(FrameOperator, abstract=True):
    """An operator that keeps the rows for which a condition over each of them holds."""

    @abstractmethod
    def condition(self, columns: Schema) -> Program:
        """One output, a bool for each row; where it is null the row goes.

        Args:
            columns: the input columns, which are the program's inputs.

        Raises:
            WorkflowError: it does not take them.
        """

    def transform_frame(self, frame: pl.LazyFrame, columns: Schema) -> pl.LazyFrame:
        """The rows for which the condition holds."""
        return filter_rows(frame, self.condition(columns), "cpu")


@dataclass(frozen=True)
class WindowOperator(ManyRowsOperator, abstract=True):
    """An operator that makes a value for each row, of this row and others: a lag, a rank.

    Its columns stand beside all others of the same rows.
    """

    @abstractmethod
    def window(self, columns: Schema, values: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Its columns, as Polars expressions over all rows in order.

        Args:
            columns: the input columns and the dependencies.
            values: the expression of each.
        """


@dataclass(frozen=True)
class OutOfFoldOperator(Operator, abstract=True):
    """An operator that must not learn a row's value from the row itself while it is trained on.

    `fit_transform` puts the rows into folds and has the value of a row come from the other
    folds; `transform` and the server use what was learnt from all rows.
    """

    @abstractmethod
    def fold(self, row: Expression) -> Expression:
        """The fold of a row, int64 from 0, by the row's number in the data."""

    @abstractmethod
    def fold_partial(
        self, frame: pl.LazyFrame, columns: Schema, fold: str
    ) -> dict[str, pl.LazyFrame]:
        """Partials for each fold; the column `fold` of the frame says which."""

    @abstractmethod
    def lower_out_of_fold(
        self, columns: Features, state: State, folds: Mapping[str, pl.DataFrame], fold: Feature
    ) -> Features:
        """The columns of `lower`, each row's from the folds that it is not in.

        Args:
            columns: the input columns.
            state: what `finish` returned.
            folds: the tables of `fold_partial`.
            fold: the fold of each row.
        """


def not_row_by_row(operator: Operator, columns: Features | Schema) -> WorkflowError:
    """The error for a workflow that is to be served and cannot."""
    return WorkflowError(
        f"{operator.label} over {', '.join(columns)} needs more than one row at a time, so what is made of it "
        "cannot be served. Put it into a workflow of its own, write its output with transform_to_parquet "
        "and train and export a second workflow on that; or leave its columns out of the network."
    )
