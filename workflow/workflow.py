"""Workflow: operators fitted to data, and one equivalent program for training and serving."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from workflow.schema.own_names import OwnNames

from .data.column_facts import ColumnFacts, column_facts
from .data.evaluate_once import evaluate_once
from .data.object_stores import is_url
from .data.sources import Source, as_path, held, options_of
from .errors import WorkflowError
from .fit.cluster import expect_client
from .fit.fit_graph import (
    Learn,
    MustLearnError,
    NeedsIntegersError,
    fit_graph,
    learn_nothing,
    learn_of_no_rows,
    learner,
)
from .fit.learn_on_cluster import cluster_learner
from .fit.training_facts import Coverages, training_data
from .graph.diagram import diagram_of
from .graph.fitted_graph import FittedGraph
from .graph.input_schema import expect_schema, integer_columns, read_schema, whole_numbers
from .graph.node import Node, as_columns
from .graph.remove_inputs import remove_inputs
from .graph.resolution import columns_read, topological
from .graph.subgraphs import subgraphs, subworkflow
from .operator.feature import State
from .operator.frame_operator import OutOfFoldOperator
from .picture import Diagram, Drawn
from .progress.stage import expect_total, showing
from .saved.save import load_workflow, save_workflow
from .saved.saved_files import expect_own
from .schema.schema import Schema
from .schema.training_data import TrainingData
from .transform.dataset_run import expect_free
from .transform.object_folder import write_to_store
from .transform.out_of_fold import transform_out_of_fold
from .transform.outputs import lazy_outputs, write_outputs
from .transform.parquet_sink import ParquetSink
from .transform.pieces_in_order import transform_stream
from .transform.reverse_mapping import reverse_mapping

# Two such files fit into memory, and a shuffle has enough files to draw from.
ROWS_PER_FILE = 1_000_000

# Counts the rows of the data, and describes its columns.
Describe = Callable[[], tuple[int, dict[str, ColumnFacts]]]


class Workflow(FittedGraph, Drawn, metaclass=OwnNames):
    """Operators over columns: fitted once, then identical in training and in the server.

    Args:
        output: the columns to make, as a graph of `["a", "b"] >> Op()`, `+` and `-`.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify())
        >>> workflow.fit({"userId": [7, 7, 9]}).transform({"userId": [9, 7, 1]}).collect()["userId"].to_list()
        [4, 3, 2]
    """

    def __init__(self, output: Node | str | Iterable[Any]) -> None:
        super().__init__(topological(as_columns(output)))
        subgraphs(self.nodes)

    def fit(
        self,
        data: Any,
        *,
        schema: Schema | None = None,
        engine: str = "auto",
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> Workflow:
        """Fit the operators to data. Fitting again replaces what was learnt before.

        Args:
            data: paths, a folder or a glob of parquet; the same of CSV or TSV with a header,
                also .gz; a Polars or pandas frame, a dict of columns, an Arrow table or reader, or
                any object with `__arrow_c_stream__`, such as a DuckDB query. Files are listed once,
                so that all operators learn from the same rows. Column types may differ between
                files if one of them, or a wider type, holds all values without loss, as int64 holds
                those of int32. If operators learn from a lazy frame or from text, it is evaluated
                once, into a temporary file (`TMPDIR`).
            schema: tags and properties of the data's columns. Default: `_schema.json` beside the
                first file of parquet, as `transform_to_parquet` writes it.
            engine: "cpu", "gpu" (through cuDF; an error if a query cannot run there) or "auto",
                which is the CPU.
            client: a `dask.distributed.Client`. Its workers learn from groups of files, which every
                worker must be able to read, and merge the results. An operator that needs all of
                the data at once, such as one after Groupby, learns on this machine.
            storage_options: how to connect to the object stores of paths such as s3://bucket/key,
                as `polars.scan_parquet` takes it. Default: the environment.
            progress: whether a fit that takes more than a second shows its rows and operators: as a
                line on standard error in a terminal or a notebook, else as messages of the logger
                `workflow.progress`. The environment variable `ENSEMBLE_PROGRESS=0` hides them everywhere.

        Returns:
            The workflow itself.

        Raises:
            WorkflowError: a column is missing or has a type that an operator does not support,
                there is no row, or an output no longer fits the dtype that was assigned to it; the
                workflow is unchanged then.
        """
        with showing("fit", progress=progress):
            expect_client(client, data)
            source = Source.of(data, engine, storage_options)
            if any(operator.learns for operator in self.operators):
                source = self._evaluated(source, schema, engine)
            self._fit(source, schema, engine, client)
        return self

    def _fit(self, source: Source, schema: Schema | None, engine: str, client: Any) -> None:
        inputs = read_schema(self.nodes, source, source.schema if schema is None else schema)
        columns = source.select(inputs.names)
        if columns.is_empty():
            raise WorkflowError(
                "Expected rows to fit to. Received: none. Check the paths, and filters on the data."
            )
        self._fit_columns(columns, inputs, engine, client, partial(column_facts, columns, inputs))

    def _fit_columns(
        self, columns: Source, inputs: Schema, engine: str, client: Any, describe: Describe
    ) -> None:
        try:
            with columns.errors("The data cannot be fitted to"):
                learn = (
                    learner(columns, engine)
                    if client is None
                    else cluster_learner(columns, engine, client)
                )
                states, facts = self._learnt(inputs, learn, describe)
        except NeedsIntegersError as needed:
            integers = integer_columns(inputs, needed.names)
            columns = whole_numbers(columns, integers, needed.label)
            self._fit_columns(columns, integers, engine, client, describe)
        else:
            self.learn(inputs, states, training_data=facts)

    def _learnt(
        self, inputs: Schema, learn: Learn, describe: Describe
    ) -> tuple[dict[int, State], TrainingData | None]:
        """Let operators learn; facts about the data are None if none does: it need not be read."""
        if not any(operator.learns for operator in self.operators):
            return fit_graph(self.nodes, inputs, learn), None
        coverages = Coverages(learn)
        with ThreadPoolExecutor(1) as pool:  # of many files footers are read while operators learn
            facts = pool.submit(describe)
            states = fit_graph(self.nodes, inputs, coverages)
            return states, training_data(*facts.result(), coverages.found)

    def fit_schema(self, schema: Schema) -> Workflow:
        """Determine the outputs' names, types and tags without data.

        A workflow that learns nothing from data is then fitted. For any other, the `output_schema` is
        then known, except for facts that depend on data, such as cardinalities; it still needs `fit`
        before it can be used.

        Args:
            schema: the columns of the data.

        Returns:
            The workflow itself.

        Raises:
            WorkflowError: a column is missing, or an operator does not support it.

        Example:
            >>> from workflow import ColumnSchema, ops
            >>> workflow = Workflow(["user"] >> ops.Categorify())
            >>> workflow.fit_schema(Schema([ColumnSchema("user", "string")])).output_schema
            Schema(user: int64)
            >>> workflow.is_fitted
            False
        """
        tags = {name: column.tags for name, column in expect_schema(schema).items()}
        inputs = schema.select(columns_read(self.nodes, tags))
        try:
            if not self._fit_without_data(inputs):
                states = fit_graph(self.nodes, inputs, learn_of_no_rows)
                self.learn(inputs, states, from_data=False)
        except NeedsIntegersError as needed:
            return self.fit_schema(integer_columns(schema, needed.names))
        return self

    def _fit_without_data(self, inputs: Schema) -> bool:
        """Fit to columns alone, if no operator learns from their values."""
        try:
            states = fit_graph(self.nodes, inputs, learn_nothing)
        except NeedsIntegersError as needed:
            return self._fit_without_data(integer_columns(inputs, needed.names))
        except MustLearnError:
            return False
        self.learn(inputs, states)
        return True

    def _source(self, data: Any, engine: str, storage_options: Mapping[str, Any] | None) -> Source:
        """Data to transform, in the types of the fitted columns where it has none itself."""
        schema = self.input_schema if self.is_fitted else None
        source = Source.of(data, engine, storage_options, schema)
        if schema is None and not self._fit_without_data(
            read_schema(self.nodes, source, source.schema)
        ):
            _ = self.states  # Its error says that the workflow must be fitted first.
        return source

    def transform(
        self,
        data: Any,
        *,
        engine: str = "auto",
        storage_options: Mapping[str, Any] | None = None,
    ) -> pl.LazyFrame:
        """The workflow's outputs for data, rows in order.

        A workflow that learns nothing from data need not be fitted first: the first data that it transforms
        sets the columns and their types, as `fit` does.

        Args:
            data: any data that `fit` takes; columns that the workflow does not read are ignored.
                Columns of integers in `fit` may be integral floats, as pandas makes them beside a
                missing value: NaN is then null. Columns of floats may be integers.
            engine: the engine on which the frame will be collected, as in `fit`.
            storage_options: as in `fit`.

        Returns:
            A lazy frame; collect it with `engine="streaming"` if it is larger than memory. The rows are
            read only by that `collect`, in the caller's hands. So damaged pages of a file without
            checksums, as other programs write them, raise a Polars error there, and a file that was
            replaced in the meantime gives its new rows. `transform_to_parquet` names the damaged file
            and row group, and refuses a replaced file.

        Raises:
            WorkflowError: a column is missing or of another kind than in `fit`, a float is not a
                whole number where one is needed, a file is not parquet or its footer cannot be
                read, or its checksums show damage; names column, row and file.
        """
        source = self._source(data, engine, storage_options)
        return lazy_outputs(self, source, engine)

    def fit_transform(
        self,
        data: Any,
        *,
        schema: Schema | None = None,
        engine: str = "auto",
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> pl.LazyFrame:
        """Fit, then transform the same data: the way to make training data.

        It differs from `fit` followed by `transform` if an operator must not learn a row's value
        from the row itself: TargetEncoding encodes each row from the other folds. Such columns are
        computed on this machine, even if a cluster has fitted the workflow.

        A lazy frame is evaluated once, since another evaluation may yield other rows, or the same
        rows in another order. The columns that are read from it are kept in a temporary file
        (`TMPDIR`) for as long as the result exists.

        Args:
            data: as in `fit`; so are the other arguments.
            schema: schema of the data.
            engine: engine of the passes over the data.
            client: client of a cluster to fit on.
            storage_options: as in `fit`.
            progress: as in `fit`.

        Returns:
            A lazy frame, as from `transform`.

        Raises:
            WorkflowError: as in `fit` and in `transform`.
        """
        with showing("fit", progress=progress):
            expect_client(client, data)
            source = self._evaluated(Source.of(data, engine, storage_options), schema, engine)
            self._fit(source, schema, engine, client)
            return transform_out_of_fold(self, source, engine)

    def _evaluated(self, source: Source, schema: Schema | None, engine: str) -> Source:
        """The data, evaluated if another evaluation could give other rows."""
        if not source.is_query:
            return source
        source = source.select(read_schema(self.nodes, source, schema).names)
        with source.errors("The data cannot be fitted to"):
            return replace(source, frame=evaluate_once(source.frame, engine))

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
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> list[Any]:
        """Transform data of any size into parquet files, and a `_schema.json` that the loader reads.

        Memory does not grow with the data: some 100 MB a core for 40 columns, the vocabularies, and
        the output of two files, or of four with `shuffle`. A lazy frame, or an operator that needs
        more than one row, is streamed by Polars, which may read a hundred row groups ahead.

        Args:
            data: any data that `fit` takes.
            folder: folder of the files; made if missing, without parquet. The files appear together
                with `_schema.json`, which names them, or not at all; the remains of a killed run are
                removed. A folder of an object store, such as s3://bucket/train, is written on this
                machine first (`TMPDIR`) and then copied; readers refuse what is not complete, and
                the remains of a killed run have to be removed.
            rows_per_file: the rows of a file; the last one may have fewer.
            compression: "snappy", "zstd", "lz4" or "uncompressed".
            shuffle: put the rows into a random order, over all files; all orders are equally
                likely. It needs disk space in the folder for all rows, uncompressed.
            seed: seed of the shuffle: the same seed, rows and `rows_per_file` give the same order.
            engine: as in `fit`.
            client: client of a cluster, as in `fit`: its workers write the same files, which
                requires a `folder` that all of them share. Each worker holds the rows of one file.
                If an operator needs more than one row, as Filter does, this machine writes the
                files.
            storage_options: as in `fit`, of the data and the folder.
            progress: as in `fit`.

        Returns:
            The files, in the order of the rows: paths, or for an object store URLs.

        Raises:
            WorkflowError: the data does not match the data in `fit`, a setting is invalid, or the
                folder contains parquet files already, lies inside the data, is being written to or
                cannot be written.

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
        data = held(data)
        options = options_of(data, storage_options) if is_url(folder) else storage_options

        def write(local: str | os.PathLike[str]) -> list[Path]:
            sink = _sink(local, data, rows_per_file, compression, seed if shuffle else None)
            with showing("transform", progress=progress):
                expect_client(client, data)
                source = self._source(data, engine, options)
                return write_outputs(self, sink, source, engine, client)

        if is_url(folder):
            return write_to_store(str(folder), storage_options, client, data, write)
        return write(folder)

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
        save_to: str | os.PathLike[str] | None = None,
        engine: str = "auto",
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> list[Any]:
        """Fit, and write the result of `fit_transform` as `transform_to_parquet` does.

        Args:
            data: as in `fit`.
            folder: as in `transform_to_parquet`.
            schema: as in `fit`.
            rows_per_file: as in `transform_to_parquet`.
            compression: as in `transform_to_parquet`.
            shuffle: as in `transform_to_parquet`.
            seed: as in `transform_to_parquet`.
            save_to: a folder, in which the fitted workflow is saved before the data is there, and not
                if another run writes into `folder`, so that no data is there without its workflow.
            engine: as in `fit`.
            client: as in `transform_to_parquet`.
            storage_options: as in `fit`, of the data and the folder.
            progress: as in `fit`.

        Returns:
            The files, in the order of the rows: paths, or for an object store URLs.

        Raises:
            WorkflowError: as `fit` and `transform_to_parquet`.
        """
        data = held(data)
        options = options_of(data, storage_options) if is_url(folder) else storage_options

        def write(local: str | os.PathLike[str]) -> list[Path]:
            sink = _sink(local, data, rows_per_file, compression, seed if shuffle else None)
            if save_to is not None:
                saved = as_path(save_to)
                expect_own(saved)
                if sink.folder.resolve().is_relative_to(saved.resolve()):
                    raise WorkflowError(
                        f"Expected a folder for the workflow alone. Received: {saved} for it, and {sink.folder} "
                        "for the data. Save the workflow into another folder."
                    )
                # Not before: the folder may be another run's, whose workflow this one would replace.
                sink = replace(sink, once_held=partial(self.save, save_to))
            with showing("fit", progress=progress):
                expect_client(client, data)
                source = self._evaluated(Source.of(data, engine, options), schema, engine)
                self._fit(source, schema, engine, client)
            with showing("transform", progress=progress):
                if not any(isinstance(o, OutOfFoldOperator) for o in self.operators):
                    return write_outputs(self, sink, source, engine, client)
                expect_total(source.row_count())
                frame = transform_out_of_fold(self, source, engine)
                with source.errors("The data cannot be transformed"):
                    return sink.write(transform_stream(frame, engine), self.output_schema)

        if is_url(folder):
            return write_to_store(str(folder), storage_options, client, data, write)
        return write(folder)

    def get_subworkflow(self, name: str) -> Workflow:
        """The part of the workflow that `Subgraph(name, ...)` named, fitted if this one is.

        Raises:
            WorkflowError: no part has this name.

        Example:
            >>> from workflow import Subgraph, ops
            >>> users = Subgraph("users", ["userId"] >> ops.Categorify())
            >>> workflow = Workflow(users + "rating").fit({"userId": [7, 9], "rating": [3.0, 5.0]})
            >>> workflow.get_subworkflow("users").output_schema.names
            ['userId']
        """
        return subworkflow(copy.copy(self), name, Workflow)

    def remove_inputs(self, names: str | Iterable[str]) -> Workflow:
        """A new workflow that no longer needs some columns of the data, such as the target for serving.

        Columns derived from them are removed too; everything else keeps its state. An operator over
        several columns continues with the others. If it cannot, because one output needs all of
        them or its settings name them, the whole operator is removed. A target that is only needed
        for learning, such as TargetEncoding's, is removed without loss.

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
        return remove_inputs(copy.copy(self), names, Workflow)

    def reverse_mapping(self, output: str) -> pl.DataFrame:
        """Meaning of each id of an output of Categorify.

        Args:
            output: its name among the outputs, even if it was renamed or cast.

        Returns:
            A frame of `id`, `kind` ("padding", "null", "out of vocabulary" or "value") and `value`,
            as in Categorify's input; the value of a combination of columns is a struct.

        Raises:
            WorkflowError: there is no such output, or its values are not ids of Categorify.

        Example:
            >>> from workflow import Workflow, ops
            >>> workflow = Workflow(["city"] >> ops.Categorify()).fit({"city": ["Rome", "Oslo", "Rome"]})
            >>> workflow.reverse_mapping("city")["value"].to_list()
            [None, None, None, 'Rome', 'Oslo']
        """
        return reverse_mapping(self, output)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted workflow as `workflow.json` and the state file that it names: data, never code.

        Args:
            folder: made if missing; an earlier workflow in it is replaced.

        Raises:
            WorkflowError: the workflow is not fitted, or the folder holds other files or cannot be
                written; its content is then unchanged.
        """
        save_workflow(self, as_path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Workflow:
        """Read a saved workflow. Nothing in its files can make this run code.

        Raises:
            WorkflowFormatError: the files are damaged or are not a workflow.
        """
        return load_workflow(as_path(folder), Workflow)

    def diagram(self) -> Diagram:
        """The diagram that `print(workflow)`, `show()`, `to_svg()` and a notebook draw."""
        return diagram_of(self)

    def __repr__(self) -> str:
        operators = ", ".join(operator.label for operator in self.operators)
        parts = [operators] * bool(operators) + ["not fitted"] * (not self.is_fitted)
        return f"Workflow({'; '.join(parts)})"


def _sink(
    folder: str | os.PathLike[str],
    data: Any,
    rows_per_file: int,
    compression: str,
    shuffle_seed: int | None,
) -> ParquetSink:
    """A sink into a folder of this machine that is free and not inside the data."""
    sink = ParquetSink(as_path(folder), rows_per_file, compression, shuffle_seed)
    sink.expect_outside(data)
    expect_free(sink.folder)
    return sink
