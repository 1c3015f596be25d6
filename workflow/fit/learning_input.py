"""Input of an operator that learns: its columns, or row positions for lists of a joined table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from workflow.expressions.polars.series import polars_dtype
from workflow.expressions.polars.stages import apply
from workflow.expressions.program.count_by_table_row import (
    POSITION,
    SplitAtLookup,
    cut_lists,
    with_positions,
)
from workflow.expressions.program.program import Program
from workflow.graph.operator_node import Bound
from workflow.graph.row_set import schema_of
from workflow.operator.feature import OfRows, Partials
from workflow.operator.operator import Operator
from workflow.schema.schema import Schema


@dataclass(frozen=True)
class Reading:
    """An operator's columns while it learns.

    Attributes:
        operator: the bound operator.
        columns: the schema of its columns.
        program: computes them, lists of a joined table as positions in the table.
        cuts: the tables of these lists, by column.

    Example:
        >>> from workflow import Workflow, ops
        >>> movies = pl.DataFrame({"movie": [1, 2], "genres": [["a", "b"], ["a"]]})
        >>> node = ["movie"] >> ops.JoinExternal(movies, on="movie") >> ops.Categorify()
        >>> made = Workflow(node).fit({"movie": [1, 2, 2]}).made
        >>> reading = read(node.bind([made[parent] for parent in node.parents]))
        >>> {column.name: str(column) for column, _ in reading.program.outputs}
        {'movie': 'int64?', 'genres': 'int64?'}
    """

    operator: Operator
    columns: Schema
    program: Program
    cuts: Mapping[str, SplitAtLookup]

    def partial(self, frame: pl.LazyFrame) -> dict[str, pl.LazyFrame]:
        """The operator's tables for some rows; tables of cut columns count positions.

        Raises:
            WorkflowError: the operator does not support its columns.
        """
        if self.cuts:  # errors have to be about the columns' real types, not about positions
            self.operator.partial(no_rows(self.columns), self.columns)
        return dict(self.operator.partial(frame, self.program.output_schema))

    def tables_of_rows(self, frame: pl.LazyFrame) -> Mapping[str, OfRows]:
        """The tables that functions make of some rows."""
        return self.operator.tables_of_rows(frame, self.program.output_schema)

    def merge(self, partials: Partials) -> Partials:
        """The tables of several parts of the rows together."""
        return self.operator.merge(partials, self.columns)

    def of_elements(self, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.LazyFrame]:
        """The tables that count positions, converted to tables that count elements."""
        counted = self.operator.counted_lists(self.columns)
        whole = {name: table.lazy() for name, table in tables.items()}
        for column, cut in self.cuts.items():
            name, key = counted[column]
            whole[name] = _elements(tables[name], key, cut.lists)
        merged = self.merge(whole)
        return {counted[column][0]: merged[counted[column][0]] for column in self.cuts}


def no_rows(columns: Schema) -> pl.LazyFrame:
    """A frame of some columns that has no row."""
    return pl.LazyFrame(
        schema={c.name: polars_dtype(c.dtype, is_list=c.is_list) for c in columns.columns}
    )


def read(bound: Bound) -> Reading:
    """Columns that an operator reads; it counts elements of lists from a joined table by position."""
    program, columns = bound.program, schema_of(bound.columns)
    counted = bound.operator.counted_lists(columns)
    cuts = {name: cut for name, cut in cut_lists(program).items() if name in counted}
    learning_program = with_positions(program, cuts) if cuts else program
    return Reading(bound.operator, columns, learning_program, cuts)


def _elements(table: pl.DataFrame, key: str, lists: Program) -> pl.LazyFrame:
    """Convert a table with a row for each position to one with a row for each element of the lists."""
    elements = apply(table.lazy().select(pl.col(key).alias(POSITION)), lists).collect().to_series()
    return table.with_columns(elements.alias(key)).lazy().explode(key, empty_as_null=False)
