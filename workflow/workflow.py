"""Workflow: operators fitted to data, and one program that does what they do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from .cluster import cluster_learner
from .data import as_lazy_frame, polars_errors, schema_beside
from .errors import WorkflowError
from .expressions.program import Program
from .fit import fit_graph, learner
from .frame_operator import OutOfFoldOperator
from .graph import Node, as_node
from .inputs import expect_inputs, read_schema
from .operator import Feature, Features, Operator, State
from .operator_node import OperatorNode
from .output_dtypes import OutputDtypes
from .parts import subgraphs, subworkflow
from .picture import Diagram, Drawn
from .remove_inputs import remove_inputs
from .resolution import columns_read, resolve_graph, topological
from .reverse import reverse_mapping
from .rows import Resolved
from .schema import Schema
from .sink import ParquetSink
from .transform import transform_pieces, transform_stream

# Two of them fit into memory, and a shuffle has enough of them to take from.
ROWS_PER_FILE = 1_000_000


class Workflow(Drawn):
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
        subgraphs(self.nodes)
        self._states: dict[int, State] | None = None
        self._made: dict[Node, Resolved] | None = None
        self._program: Program | None = None
        self.input_schema = Schema()
        self.output_dtypes = OutputDtypes(self)

    def fit(
        self,
        data: Any,
        *,
        schema: Schema | None = None,
        engine: str = "auto",
        client: Any = None,
    ) -> Workflow:
        """Learn what the operators need. Fitting again forgets what was learnt before.

        Args:
            data: paths, a folder or a glob of parquet, a Polars or pandas frame, or a dict.
            schema: tags and properties of the data's columns. Default: `schema.json` in the
                folder of parquet, as `transform_to_parquet` writes it.
            engine: "cpu", "gpu" (through cuDF; an error where a query cannot run there) or
                "auto", which is the CPU.
            client: a `dask.distributed.Client`: its workers learn from groups of files, which
                they all must be able to read, and merge what they learnt. An operator whose rows
                need all of the data, as after Groupby, learns on this machine.

        Returns:
            the workflow itself.

        Raises:
            WorkflowError: a column is missing or of a type that an operator does not take, or
                there is no row.
        """
        frame = as_lazy_frame(data)
        inputs = read_schema(self.nodes, frame, schema_beside(data) if schema is None else schema)
        with polars_errors("The data cannot be fitted to"):
            own = frame.select(inputs.names)
            if own.select(pl.len()).collect().item() == 0:
                raise WorkflowError("There is no row to fit to.")
            learn = (
                learner(data, own, engine)
                if client is None
                else cluster_learner(data, own, engine, client)
            )
            states = fit_graph(self.nodes, inputs, learn)
        self.input_schema, self._states = inputs, states
        self._forget()
        return self

    def fit_schema(self, schema: Schema) -> Workflow:
        """Fit a workflow that learns nothing, without data: its output schema is then known.

        Args:
            schema: the columns of the data.

        Returns:
            the workflow itself.

        Raises:
            WorkflowError: a column is missing, or an operator learns from data.

        Example:
            >>> from workflow import ColumnSchema, ops
            >>> workflow = Workflow(["price"] >> ops.FillMissing(0))
            >>> workflow.fit_schema(Schema([ColumnSchema("price", "float32")])).output_schema
            Schema(price: float32)
        """
        inputs = schema.select(columns_read(self.nodes, {n: c.tags for n, c in schema.items()}))
        operators = [node.operator for node in self.nodes if isinstance(node, OperatorNode)]
        learning = [operator.label for operator in operators if operator.learns]
        if learning:
            raise WorkflowError(f"{', '.join(learning)} must learn from data. Call fit(data).")
        self._made = resolve_graph(self.nodes, {}, inputs)
        self.input_schema, self._states, self._program = inputs, {}, None
        return self

    @property
    def is_fitted(self) -> bool:
        """Whether the operators have learnt what they need."""
        return self._states is not None

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
        frame = as_lazy_frame(data)
        self._expect_inputs(frame)
        return self.made[self.nodes[-1]].rows.select(frame, self._steps)

    def _expect_inputs(self, frame: pl.LazyFrame) -> None:
        expect_inputs(frame, self.made[self.nodes[-1]].rows.reads(self._steps))

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
        rows_per_file: int = ROWS_PER_FILE,
        compression: str = "snappy",
        shuffle: bool = False,
        seed: int = 0,
        engine: str = "auto",
    ) -> list[Path]:
        """Transform data of any size into parquet files, and a `schema.json` that the loader reads.

        The memory that it takes does not grow with the data: some 100 MB a core for 40 columns,
        what the vocabularies take, and the output of two files, of four with `shuffle`. A lazy
        frame, or an operator that needs more rows than one, is streamed by Polars, which may read
        a hundred row groups ahead.

        Args:
            data: what `fit` takes.
            folder: where the files go; made if missing, and it must hold no parquet yet.
            rows_per_file: the rows of a file; the last one may have fewer.
            compression: "snappy", "zstd", "lz4" or "uncompressed".
            shuffle: put the rows into a random order, over all files; every order is equally
                likely. It takes room in the folder for all rows, uncompressed.
            seed: of the shuffle: the same seed, rows and `rows_per_file` give the same order.
            engine: as in `fit`.

        Returns:
            the files, in the order of the rows.

        Raises:
            WorkflowError: the data is not what `fit` has seen, a setting makes no sense, or the
                folder holds parquet files already.

        Example:
            >>> import tempfile
            >>> from workflow import ops
            >>> ratings = {"userId": [7, 7, 9], "rating": [1.0, 5.0, 3.0]}
            >>> workflow = Workflow((["userId"] >> ops.Categorify()) + "rating").fit(ratings)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     files = workflow.transform_to_parquet(ratings, folder, rows_per_file=2)
            ...     [pl.read_parquet(file)["userId"].to_list() for file in files]
            [[3, 3], [4]]
        """
        sink = ParquetSink(Path(folder), rows_per_file, compression, seed if shuffle else None)
        self._expect_inputs(as_lazy_frame(data))
        with polars_errors("The data cannot be transformed"):
            return sink.write(self._frames(data, engine), self.output_schema)

    def fit_transform_to_parquet(
        self,
        data: Any,
        folder: str | os.PathLike[str],
        *,
        schema: Schema | None = None,
        rows_per_file: int = ROWS_PER_FILE,
        compression: str = "snappy",
        shuffle: bool = False,
        seed: int = 0,
        engine: str = "auto",
    ) -> list[Path]:
        """Fit, and write what `fit_transform` makes as `transform_to_parquet` does."""
        sink = ParquetSink(Path(folder), rows_per_file, compression, seed if shuffle else None)
        frame = self.fit_transform(data, schema=schema, engine=engine)
        with polars_errors("The data cannot be transformed"):
            out_of_fold = any(isinstance(o, OutOfFoldOperator) for o in self._operators)
            frames = transform_stream(frame, engine) if out_of_fold else self._frames(data, engine)
            return sink.write(frames, self.output_schema)

    def _frames(self, data: Any, engine: str) -> Iterator[pl.DataFrame]:
        """The outputs in frames of bounded size, rows in order."""
        if all(o.row_by_row for o in self._operators) and not isinstance(data, pl.LazyFrame):
            return transform_pieces(self.program, data, engine)
        return transform_stream(self.transform(data), engine)

    @property
    def _operators(self) -> list[Operator]:
        return [node.operator for node in self.nodes if isinstance(node, OperatorNode)]

    def get_subworkflow(self, name: str) -> Workflow:
        """The part of the workflow that `Subgraph(name, ...)` gave a name, fitted if this one is.

        Raises:
            WorkflowError: no part has this name.

        Example:
            >>> from workflow import Subgraph, ops
            >>> users = Subgraph("users", ["userId"] >> ops.Categorify())
            >>> workflow = Workflow(users + "rating").fit({"userId": [7, 9], "rating": [3.0, 5.0]})
            >>> workflow.get_subworkflow("users").output_schema.names
            ['userId']
        """
        return subworkflow(self, name)

    def remove_inputs(self, names: str | Iterable[str]) -> Workflow:
        """A new workflow that needs some columns of the data no more: the target, when it serves.

        What is made of these columns goes with them; all else stays as it was learnt. An operator
        over several columns goes on with the others. Where it cannot, because one output needs
        all of them or its settings name them, the whole operator goes. A target that is needed
        only to learn, as TargetEncoding's, goes without loss.

        Args:
            names: columns of the `input_schema`.

        Raises:
            WorkflowError: the workflow is not fitted, has no such input, or nothing would remain.

        Example:
            >>> from workflow import ops
            >>> ids = ["userId", "movieId"] >> ops.Categorify()
            >>> workflow = Workflow(ids + "rating").fit({"userId": [7], "movieId": [1], "rating": [3.0]})
            >>> workflow.remove_inputs(["rating", "movieId"]).output_schema.names
            ['userId']
        """
        return remove_inputs(self, names)

    def reverse_mapping(self, output: str) -> pl.DataFrame:
        """What each id of an output of Categorify stands for.

        Args:
            output: its name among the outputs, whether or not it was renamed or cast since.

        Returns:
            a frame of `id`, `kind` ("padding", "null", "out of vocabulary" or "value") and `value`, as
            Categorify was given it; the value of a combination of columns is a struct of theirs.

        Raises:
            WorkflowError: there is no such output, or its values are no ids of Categorify.

        Example:
            >>> from workflow import Workflow, ops
            >>> workflow = Workflow(["city"] >> ops.Categorify()).fit({"city": ["Rome", "Oslo", "Rome"]})
            >>> workflow.reverse_mapping("city")["value"].to_list()
            [None, None, None, 'Rome', 'Oslo']
        """
        return reverse_mapping(self, output)

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

    def diagram(self) -> Diagram:
        """What `print(workflow)`, `show()`, `to_svg()` and a notebook draw."""
        from .drawing import diagram_of  # noqa: PLC0415 - it draws workflows

        return diagram_of(self)

    def __repr__(self) -> str:
        operators = ", ".join(n.label for n in self.nodes if isinstance(n, OperatorNode))
        parts = [operators] * bool(operators) + ["not fitted"] * (not self.is_fitted)
        return f"Workflow({'; '.join(parts)})"
