"""Workflow: operators fitted to data, and one program that does what they do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from .data import as_lazy_frame, polars_errors
from .errors import WorkflowError
from .expressions.polars import apply
from .expressions.program import Program, build
from .expressions.series import column_schema
from .expressions.tree import source
from .expressions.verbs import Type
from .fit import fit_graph
from .graph import Node, OperatorNode, SelectNode, as_node, topological
from .operator import Feature, Features, State
from .schema import ColumnSchema, Schema, dtype_of
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
        self._features: dict[Node, Features] | None = None
        self._program: Program | None = None
        self.input_schema = Schema()
        self.output_dtypes = OutputDtypes(self)

    def fit(self, data: Any, *, engine: str = "auto") -> Workflow:
        """Learn what the operators need. Fitting again forgets what was learnt before.

        Args:
            data: paths, a folder or a glob of parquet, a Polars or pandas frame, or a dict.
            engine: "cpu", "gpu" (through cuDF; an error where a query cannot run there) or
                "auto", which is the CPU.

        Returns:
            the workflow itself.

        Raises:
            WorkflowError: a column is missing or of a type that an operator does not take, or
                there is no row.
        """
        frame = as_lazy_frame(data)
        schema = self._read_schema(frame)
        with polars_errors("The data cannot be fitted to"):
            states = fit_graph(self.nodes, frame.select(schema.names), _sources(schema), engine)
        self.input_schema, self._states = schema, states
        self._forget()
        return self

    def _read_schema(self, frame: pl.LazyFrame) -> Schema:
        """The schema of the columns that the graph reads."""
        with polars_errors("The data cannot be read"):
            have = frame.collect_schema()
        wanted = [n for node in self.nodes if isinstance(node, SelectNode) for n in node.names]
        _expect_columns(wanted, list(have), "the data")
        return Schema(column_schema(name, have[name]) for name in dict.fromkeys(wanted))

    @property
    def states(self) -> dict[int, State]:
        """What each node's operator has learnt, by the node's number.

        Raises:
            WorkflowError: the workflow is not fitted.
        """
        if self._states is None:
            raise WorkflowError("The workflow is not fitted. Call fit(data) first.")
        return self._states

    def features(self) -> dict[Node, Features]:
        """The columns of every node, as expressions over the data's."""
        if self._features is None:
            states, sources = self.states, _sources(self.input_schema)
            resolved: dict[Node, Features] = {}
            for number, node in enumerate(self.nodes):
                inputs = [resolved[p] for p in node.parents] or [sources]
                resolved[node] = node.resolve(inputs, states.get(number, {}))
            self._features = resolved
        return dict(self._features)

    def outputs(self) -> Features:
        """The columns that the workflow makes, before an assigned dtype casts them."""
        return self.features()[self.nodes[-1]]

    @property
    def program(self) -> Program:
        """The whole workflow as steps over arrays: what every interpreter runs."""
        if self._program is None:
            dtypes = self.output_dtypes
            outputs = [
                (feature.schema.with_(dtype=dtypes[name]), feature.expression)
                for name, feature in self.outputs().items()
            ]
            self._program = build(outputs, self.input_schema)
        return self._program

    @property
    def output_schema(self) -> Schema:
        """The columns that the workflow makes, with tags, cardinalities and domains."""
        return self.program.output_schema

    def transform(self, data: Any) -> pl.LazyFrame:
        """The workflow's outputs for data, rows in order.

        Args:
            data: what `fit` takes; columns that the workflow does not read are left out.

        Returns:
            a lazy frame; collect it with `engine="streaming"` where it is larger than memory.

        Raises:
            WorkflowError: a column is missing, or is of another kind than in `fit`.
        """
        frame = as_lazy_frame(data)
        inputs = self.program.inputs
        with polars_errors("The data cannot be read"):
            have = frame.collect_schema()
        _expect_columns(inputs.names, list(have), "the data")
        for column in inputs.columns:
            _expect_kind(column, have[column.name])
        return apply(frame, self.program)

    def fit_transform(self, data: Any, *, engine: str = "auto") -> pl.LazyFrame:
        """Fit, then transform the same data."""
        return self.fit(data, engine=engine).transform(data)

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
        frame = self.transform(data)
        with polars_errors("The data cannot be transformed"):
            return sink_parquet(frame, self.output_schema, Path(folder), rows_per_file, compression)

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
        self._features = self._program = None

    def __repr__(self) -> str:
        operators = [node.label for node in self.nodes if isinstance(node, OperatorNode)]
        return (
            f"Workflow({', '.join(operators)}{'' if self._states is not None else '; not fitted'})"
        )


class OutputDtypes(MutableMapping[str, str]):
    """The dtype of each output, for a list column that of its elements; assign one to change it.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> workflow.output_dtypes["userId"] = "int32"
        >>> workflow.transform({"userId": [7]}).collect().schema["userId"]
        Int32
    """

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self.assigned: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        made = self._column(name).dtype
        return self.assigned.get(name, made)

    def _column(self, name: str) -> ColumnSchema:
        outputs = self._workflow.outputs()
        if name not in outputs:
            raise WorkflowError(f"No output {name!r}. The outputs are: {', '.join(outputs)}.")
        return outputs[name].schema

    def __setitem__(self, name: str, dtype: Any) -> None:
        column, wanted = self._column(name), dtype_of(dtype)
        if (column.info.kind == "string") != (wanted.kind == "string"):
            raise WorkflowError(
                f"Output {name!r} is {column.dtype} and cannot become {wanted.name}."
            )
        largest = column.properties.get("domain", {}).get("max", 0)
        if wanted.is_integer and largest > np.iinfo(wanted.numpy).max:
            raise WorkflowError(
                f"Output {name!r} has values up to {largest}, which {wanted.name} does not hold."
            )
        self.assigned[name] = wanted.name
        self._workflow.forget_program()

    def __delitem__(self, name: str) -> None:
        self._column(name)
        self.assigned.pop(name, None)
        self._workflow.forget_program()

    def __iter__(self) -> Iterator[str]:
        return iter(self._workflow.outputs())

    def __len__(self) -> int:
        return len(self._workflow.outputs())

    def __repr__(self) -> str:
        return repr(dict(self))


def _sources(schema: Schema) -> Features:
    """The data's columns as features."""
    return {
        c.name: Feature(source(c.name, Type(c.dtype, c.is_list, c.nullable)), c)
        for c in schema.columns
    }


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
