"""Workflow: operators fitted to data, and one program that does what they do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from .data import as_lazy_frame, polars_errors, schema_beside
from .errors import WorkflowError
from .expressions.program import Program
from .expressions.series import column_schema
from .fit import fit_graph
from .graph import ColumnSelector, Node, OperatorNode, as_node, topological
from .operator import Feature, Features, State
from .output_dtypes import OutputDtypes
from .resolution import resolve_graph
from .rows import Resolved
from .schema import ColumnSchema, Schema
from .selection import names_of
from .sink import sink_parquet


class Workflow:
    """Operators over columns: fitted once, then the same in training and in the server.

    Args:
        output: the columns to make, as a graph of `["a", "b"] >> Op()`, `+` and `-`.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify())
        >>> workflow.fit({"userId": [7, 7, 9]}).transform({"userId": [9, 7, 1]}).collect()["userId"].to_list()
        [4, 3, 2]
    """

    def __init__(self, output: Node | str | Iterable[Any]) -> None:
        self.nodes = topological(as_node(output))
        self._states: dict[int, State] | None = None
        self._made: dict[Node, Resolved] | None = None
        self._program: Program | None = None
        self.input_schema = Schema()
        self.output_dtypes = OutputDtypes(self)

    def fit(self, data: Any, *, schema: Schema | None = None, engine: str = "auto") -> Workflow:
        """Learn what the operators need. Fitting again forgets what was learnt before.

        Args:
            data: paths, a folder or a glob of parquet, a Polars or pandas frame, or a dict.
            schema: tags and properties of the data's columns. Default: `schema.json` in the
                folder of parquet, as `transform_to_parquet` writes it.
            engine: "cpu", "gpu" (through cuDF; an error where a query cannot run there) or
                "auto", which is the CPU.

        Returns:
            the workflow itself.

        Raises:
            WorkflowError: a column is missing or of a type that an operator does not take, or
                there is no row.
        """
        frame = as_lazy_frame(data)
        inputs = self._read_schema(frame, schema_beside(data) if schema is None else schema)
        with polars_errors("The data cannot be fitted to"):
            states = fit_graph(self.nodes, frame.select(inputs.names), inputs, engine)
        self.input_schema, self._states = inputs, states
        self._forget()
        return self

    def _read_schema(self, frame: pl.LazyFrame, known: Schema | None) -> Schema:
        """The schema of the columns that the graph reads, with what is known of them."""
        with polars_errors("The data cannot be read"):
            have = frame.collect_schema()
        facts = known or Schema()
        tags = {name: facts[name].tags if name in facts else () for name in have}
        choices = [n.selection for n in self.nodes if isinstance(n, ColumnSelector)]
        wanted = [name for c in choices for name in names_of(c.pick(tags, "the data"))]
        if any(choice.is_dynamic for choice in choices):
            # Where a workflow takes what there is, the order is that of the data.
            wanted = [name for name in have if name in set(wanted)]
        columns = [column_schema(name, have[name]) for name in dict.fromkeys(wanted)]
        return Schema(
            c.with_(
                tags=tags[c.name], properties=facts[c.name].properties if c.name in facts else {}
            )
            for c in columns
        )

    @property
    def states(self) -> dict[int, State]:
        """What each node's operator has learnt, by the node's number.

        Raises:
            WorkflowError: the workflow is not fitted.
        """
        if self._states is None:
            raise WorkflowError("The workflow is not fitted. Call fit(data) first.")
        return self._states

    @property
    def made(self) -> dict[Node, Resolved]:
        """What every node makes: its columns as expressions, and of which rows."""
        if self._made is None:
            self._made = resolve_graph(self.nodes, self.states, self.input_schema)
        return self._made

    def features(self) -> dict[Node, Features]:
        """The columns of every node, as expressions over those of the data (see `made`)."""
        return {node: made.columns for node, made in self.made.items()}

    def outputs(self) -> Features:
        """The columns that the workflow makes, before an assigned dtype casts them."""
        return self.made[self.nodes[-1]].columns

    def served(self, names: Iterable[str]) -> Features:
        """Some of the outputs, which a server can make of one row at a time.

        Raises:
            WorkflowError: one of them needs more rows; names the operator and what to do.
        """
        chosen = {name: self.outputs()[name] for name in names}
        rows = self.made[self.nodes[-1]].rows
        rows.expect_row_by_row(rows.program(chosen.values()))
        return chosen

    @property
    def program(self) -> Program:
        """The whole workflow as steps over arrays: what every interpreter runs, row by row.

        Raises:
            WorkflowError: an output needs more than one row.
        """
        self.made[self.nodes[-1]].rows.expect_row_by_row(self._steps)
        return self._steps

    @property
    def _steps(self) -> Program:
        """The outputs over the sources of their rows, which are not those of the data in any case."""
        if self._program is None:
            self._program = self.steps_of(self.made[self.nodes[-1]])
        return self._program

    def steps_of(self, output: Resolved) -> Program:
        """The steps to what the last node makes, cast to the dtypes that are assigned."""
        return output.rows.program(
            Feature(f.expression, f.schema.with_(dtype=self.output_dtypes[name]))
            for name, f in output.columns.items()
        )

    @property
    def output_schema(self) -> Schema:
        """The columns that the workflow makes, with tags, cardinalities and domains."""
        return self._steps.output_schema

    def transform(self, data: Any) -> pl.LazyFrame:
        """The workflow's outputs for data, rows in order.

        Args:
            data: what `fit` takes; columns that the workflow does not read are left out.

        Returns:
            a lazy frame; collect it with `engine="streaming"` where it is larger than memory.

        Raises:
            WorkflowError: a column is missing, or is of another kind than in `fit`.
        """
        frame, rows = as_lazy_frame(data), self.made[self.nodes[-1]].rows
        inputs = rows.reads(self._steps)
        with polars_errors("The data cannot be read"):
            have = frame.collect_schema()
        _expect_columns(inputs.names, list(have), "the data")
        for column in inputs.columns:
            _expect_kind(column, have[column.name])
        return rows.select(frame, self._steps)

    def fit_transform(
        self, data: Any, *, schema: Schema | None = None, engine: str = "auto"
    ) -> pl.LazyFrame:
        """Fit, then transform the same data: the way to make training data.

        It differs from `fit` and then `transform` where an operator must not learn a row's value
        from the row itself: TargetEncoding encodes each row from the other folds.
        """
        self.fit(data, schema=schema, engine=engine)
        from .out_of_fold import transform_out_of_fold  # noqa: PLC0415 - it transforms workflows

        return transform_out_of_fold(self, as_lazy_frame(data), engine)

    def transform_to_parquet(
        self,
        data: Any,
        folder: str | os.PathLike[str],
        *,
        rows_per_file: int = 2_000_000,
        compression: str = "snappy",
    ) -> list[Path]:
        """Transform data of any size into parquet files, and a `schema.json` that the loader reads.

        Args:
            data: what `fit` takes.
            folder: where the files go; made if missing, and it must hold no parquet yet.
            rows_per_file: the most rows a file holds.
            compression: "snappy", "zstd", "lz4" or "uncompressed".

        Returns:
            the files, in the order of the rows.
        """
        return self._sink(self.transform(data), folder, rows_per_file, compression)

    def fit_transform_to_parquet(
        self,
        data: Any,
        folder: str | os.PathLike[str],
        *,
        schema: Schema | None = None,
        rows_per_file: int = 2_000_000,
        compression: str = "snappy",
        engine: str = "auto",
    ) -> list[Path]:
        """Fit, and write what `fit_transform` makes as `transform_to_parquet` does."""
        frame = self.fit_transform(data, schema=schema, engine=engine)
        return self._sink(frame, folder, rows_per_file, compression)

    def _sink(
        self, frame: pl.LazyFrame, folder: str | os.PathLike[str], rows: int, compression: str
    ) -> list[Path]:
        with polars_errors("The data cannot be transformed"):
            return sink_parquet(frame, self.output_schema, Path(folder), rows, compression)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted workflow as `workflow.json` and `state.safetensors`: data, never code."""
        from .store import save_workflow  # noqa: PLC0415 - the store makes workflows

        save_workflow(self, Path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Workflow:
        """Read what `save` wrote. Nothing in the files can make this run code.

        Raises:
            WorkflowFormatError: the files are damaged or are not a workflow.
        """
        from .store import load_workflow  # noqa: PLC0415

        return load_workflow(Path(folder))

    def restore(
        self, input_schema: Schema, states: dict[int, State], dtypes: Mapping[str, str]
    ) -> Workflow:
        """Take what a saved workflow had learnt."""
        self.input_schema, self._states = input_schema, states
        self._forget()
        self.output_dtypes.update(dtypes)
        return self

    def forget_program(self) -> None:
        """Build the program anew at its next use, because an output's dtype changed."""
        self._program = None

    def _forget(self) -> None:
        self._made = self._program = None

    def __repr__(self) -> str:
        operators = [node.label for node in self.nodes if isinstance(node, OperatorNode)]
        return (
            f"Workflow({', '.join(operators)}{'' if self._states is not None else '; not fitted'})"
        )


def _expect_columns(wanted: Iterable[str], have: list[str], where: str) -> None:
    missing = [name for name in dict.fromkeys(wanted) if name not in have]
    if missing:
        raise WorkflowError(
            f"No column {', '.join(map(repr, missing))} in {where}. It has: {', '.join(have)}."
        )


def _expect_kind(column: ColumnSchema, received: pl.DataType) -> None:
    if received == pl.Null or (isinstance(received, pl.List) and received.inner == pl.Null):
        return
    have = column_schema(column.name, received)
    same = have.info.kind == column.info.kind or {have.info.kind, column.info.kind} == {
        "int",
        "uint",
    }
    if not same or have.is_list != column.is_list:
        raise WorkflowError(
            f"Expected column {column.name!r} as {column}, as in fit. Received: {received}."
        )
