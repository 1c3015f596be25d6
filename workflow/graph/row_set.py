"""Sets of rows: only columns of the same row set can stand side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from workflow.engine.engine import brought_to_host, filter_rows, is_gpu, run_program, with_outputs
from workflow.errors import WorkflowError
from workflow.expressions.language.tree import Expression, source
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import Program, build
from workflow.operator.feature import Feature, Features, Groups
from workflow.operator.frame_operator import (
    FrameOperator,
    RowFilter,
    WindowOperator,
    not_row_by_row,
)
from workflow.operator.operator import Operator
from workflow.schema.names import listed
from workflow.schema.schema import ColumnSchema, Schema

from .selection import regroup

# Groups of columns, each with the operator that replaced them by other columns.
Lost = tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True)
class Origin:
    """Origin of rows that differ from those of the data."""

    operator: FrameOperator
    rows: RowSet
    columns: Features

    def program(self) -> Program:
        """The steps to the columns that the operator reads."""
        return self.rows.program(self.columns.values())

    def rows_made(self, before: pl.LazyFrame, engine: str) -> pl.LazyFrame:
        """The rows that the operator makes, from a frame of `program`'s outputs."""
        columns = schema_of(self.columns)
        if isinstance(self.operator, RowFilter):
            return filter_rows(before, self.operator.condition(columns), engine, columns.names)
        # Null, as on arrival in any rows: NaN is no value, and no key beside null.
        before = before.with_columns(_missing(pl.col(c.name), c) for c in columns.columns)
        if not self.operator.groups_on_host(columns):
            return self.operator.transform_frame(before, columns)
        frame = self.operator.transform_frame(brought_to_host(before, engine), columns)
        return frame.collect().lazy() if is_gpu(engine) else frame


@dataclass(frozen=True)
class Extension:
    """Columns that were computed over all rows, as additional sources.

    Attributes:
        operator: computes them, or needs the row's index.
        columns: the columns that it reads.
        keys: the name of each new column among the sources.
    """

    operator: Operator
    columns: Features
    keys: Mapping[str, str]

    def extend(self, frame: pl.LazyFrame, values: Mapping[str, pl.Expr]) -> pl.LazyFrame:
        """A frame with the new columns, given the expressions of the columns that they need."""
        if not isinstance(self.operator, WindowOperator):
            [key] = self.keys.values()
            return frame.with_row_index(key)
        exprs = self.operator.window(schema_of(self.columns), values)
        return frame.with_columns(exprs[name].alias(key) for name, key in self.keys.items())


class RowSet:
    """The rows of the data, or rows that a frame-level operator makes from others.

    Expressions over a row set read its sources: the columns of its origin, and the columns that
    window operators add.

    Args:
        columns: the sources.
        origin: what made the rows; None for the rows of the data.
    """

    def __init__(self, columns: Schema, origin: Origin | None = None) -> None:
        self.columns = columns
        self.origin = origin
        self.extensions: list[Extension] = []
        self._sources = columns

    def generations(self) -> list[RowSet]:
        """The rows of the data, and those that were made of them one after another, these last."""
        found = [self]
        while (origin := found[-1].origin) is not None:
            found.append(origin.rows)
        return found[::-1]

    def features(self) -> Features:
        """The original sources of the rows."""
        return {c.name: _source(c.name, c) for c in self.columns.columns}

    def program(self, outputs: Iterable[Feature]) -> Program:
        """The steps from the sources to some columns of these rows."""
        pairs = [(f.schema, f.expression) for f in outputs]
        return build(pairs, self._sources)

    def windowed(self, operator: WindowOperator, columns: Features) -> Features:
        """Add the columns of a window operator as sources."""
        return self._extended(operator, columns, operator.frame_schema(schema_of(columns)))

    def numbered(self, operator: Operator, name: str) -> Feature:
        """Add the index of each row, int64 from 0, for an operator that needs it."""
        outputs = Schema([ColumnSchema(name, "int64", nullable=False)])
        return self._extended(operator, {}, outputs)[name]

    def _free_key(self, name: str) -> str:
        number = len(self._sources)
        while (key := f"{name}@{number}") in self._sources:
            number += 1
        return key

    def _extended(self, operator: Operator, columns: Features, outputs: Schema) -> Features:
        keys = {name: self._free_key(name) for name in outputs}
        further = [column.with_(name=keys[column.name]) for column in outputs.columns]
        self._sources = Schema([*self._sources.columns, *further])
        self.extensions.append(Extension(operator, columns, keys))
        return {name: _source(keys[name], outputs[name]) for name in outputs}

    def select(
        self, data: pl.LazyFrame, program: Program, engine: str = "cpu", *, hold: bool = False
    ) -> pl.LazyFrame:
        """A program's outputs for data, lazily.

        Args:
            data: the columns of the data that `reads` names.
            program: a result of `program`.
            engine: the engine for collecting the outputs: "auto", "cpu" or "gpu".
            hold: as in `run_program`.
        """
        # A loop, since hundreds of operators may have made rows of rows.
        later: list[tuple[Origin, RowSet, Program]] = []
        rows = self
        while (origin := rows.origin) is not None:
            later.append((origin, rows, program))
            rows, program = origin.rows, origin.program()
        names = rows.columns.keep(rows.needed(program)[0]).names
        frame = data.select(names) if names else data
        for origin, after, next_program in reversed(later):
            frame = origin.rows_made(rows.outputs(frame, program, engine), engine)
            rows, program = after, next_program
        return rows.outputs(frame, program, engine, hold=hold)

    def outputs(
        self, frame: pl.LazyFrame, program: Program, engine: str, *, hold: bool = False
    ) -> pl.LazyFrame:
        """A program's outputs for a frame of these rows."""
        for extension in self.needed(program)[1]:
            inner = self.program(extension.columns.values())
            frame, names = with_outputs(frame, inner, engine)
            schema = schema_of(extension.columns).columns
            values = {
                column.name: _missing(pl.col(name), column)
                for column, name in zip(schema, names, strict=True)
            }
            frame = extension.extend(frame, values).drop(names)
        return run_program(frame, program, engine, hold=hold)

    def reads(self, program: Program) -> Schema:
        """The columns of the data that a program over these rows needs."""
        rows = self
        while (origin := rows.origin) is not None:
            rows, program = origin.rows, origin.program()
        return rows.columns.keep(rows.needed(program)[0])

    def column_of_data(self, feature: Feature) -> str | None:
        """The column of the data that a column of these rows is, if nothing has computed it."""
        if feature.expression.verb != "source":
            return None
        name = feature.expression.parameters["name"]
        if self.origin is None:
            return name if name in self.columns else None
        if name in self.columns and isinstance(self.origin.operator, RowFilter):
            return self.origin.rows.column_of_data(self.origin.columns[name])
        return None

    def needed(self, program: Program) -> tuple[set[str], list[Extension]]:
        """The sources that a program reads, directly or through extensions, and these extensions."""
        sources, extensions = set(program.inputs), []
        for extension in reversed(self.extensions):
            if not sources.isdisjoint(extension.keys.values()):
                sources |= set(self.program(extension.columns.values()).inputs)
                extensions.append(extension)
        return sources, extensions[::-1]

    def is_row_by_row(self, program: Program) -> bool:
        """Whether a program can be computed from one row of the data."""
        return self.origin is None and not self.needed(program)[1]

    def expect_row_by_row(self, program: Program) -> None:
        """Check that a program can be computed from one row of the data.

        Raises:
            WorkflowError: names the operator that needs more rows, and its columns.
        """
        if self.origin is not None:
            raise not_row_by_row(self.origin.operator, self.origin.columns)
        for extension in self.needed(program)[1]:
            raise not_row_by_row(extension.operator, extension.columns)


@dataclass(frozen=True)
class Resolved:
    """Columns made by a node of a graph.

    Attributes:
        columns: the columns, as expressions over the sources of their rows.
        groups: groups of columns; every column is in at least one.
        rows: the row set of the columns.
        lost: groups that ended on the way, with the operator that replaced their columns.
    """

    columns: Features
    groups: Groups
    rows: RowSet
    lost: Lost = ()

    def grouped(self, names: Collection[str]) -> Groups:
        """Some of the columns in their groups; a group that loses a column is split up."""
        near = dict.fromkeys(group for name in names for group in self._groups_of[name])
        return regroup(tuple(near), names)

    @cached_property
    def tags(self) -> Mapping[str, Sequence[str]]:
        """The tags of each column."""
        return {name: feature.schema.tags for name, feature in self.columns.items()}

    @cached_property
    def _groups_of(self) -> Mapping[str, list[tuple[str, ...]]]:
        # Computed once, since each of thousands of nodes may select one column of the data.
        groups: dict[str, list[tuple[str, ...]]] = {name: [] for name in self.columns}
        for group in self.groups:
            for name in group:
                groups[name].append(group)
        return groups


def rows_of(label: str, inputs: Iterable[Resolved]) -> RowSet:
    """The row set that all inputs of a node share.

    Raises:
        WorkflowError: the inputs have different row sets.
    """
    first, *others = inputs
    for other in others:
        if other.rows is not first.rows:
            raise WorkflowError(
                f"{label}: the columns {listed(first.columns)} and {listed(other.columns)} have different rows, "
                f"since {_changes(first.rows, other.rows)} on the way to one of them. Put all columns through it: "
                "rows = all_columns >> Op(), and continue with rows['a'] and rows['b']."
            )
    return first.rows


def _changes(*sets: RowSet) -> str:
    labels = [rows.origin.operator.label for rows in sets if rows.origin is not None]
    return f"{' and '.join(labels)} changed the rows"


def schema_of(columns: Features) -> Schema:
    """The schema of some features."""
    return Schema(feature.schema for feature in columns.values())


def sources_of(columns: Schema) -> dict[str, Expression]:
    """Columns as expressions, by name, for a program with these inputs."""
    return {c.name: _source(c.name, c).expression for c in columns.columns}


def _missing(value: pl.Expr, column: ColumnSchema) -> pl.Expr:
    """The values of a column with null in place of a NaN that an operator has computed."""
    return value.fill_nan(None) if column.info.kind == "float" and not column.is_list else value


def _source(key: str, column: ColumnSchema) -> Feature:
    return Feature(source(key, Type(column.dtype, column.is_list, column.nullable)), column)
