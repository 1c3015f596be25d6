"""Outputs of a fitted graph: as one query, or in pieces for files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from workflow.data.sources import Source
from workflow.engine.engine import is_gpu
from workflow.expressions.cudf.rows_on_gpu import Gpu, RowsOnGpu
from workflow.fit.cluster import expect_shared
from workflow.graph.fitted_graph import FittedGraph
from workflow.graph.input_schema import held_to
from workflow.progress.stage import at_work, expect_total

from .cluster import Work, write_on_cluster
from .narrowed_outputs import expect_narrowed
from .parquet_sink import ParquetSink
from .pieces_in_order import rows_at_once, transform_on_gpu, transform_pieces, transform_stream

_FAILED = "The data cannot be transformed"


def lazy_outputs(graph: FittedGraph, source: Source, engine: str) -> pl.LazyFrame:
    """The result of `Workflow.transform`, to be collected on an engine.

    Args:
        graph: a fitted graph.
        source: the data.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the data does not match the data in `fit`.
    """
    graph = copy.copy(graph)  # which another thread may fit meanwhile
    rows = graph.made[graph.nodes[-1]].rows
    columns, _ = _columns(graph, source)
    with columns.errors(_FAILED):
        frame = columns.sound().frame
        if columns.is_query and not is_gpu(engine):
            # Polars 1.44 loses the order of rows where all outputs choose between constants. Before a
            # function, which could see the order, it keeps it.
            frame = frame.map_batches(lambda rows: rows, streamable=True)
        return rows.select(frame, graph.steps, engine)


def _columns(graph: FittedGraph, source: Source) -> tuple[Source, bool]:
    """The validated columns that a graph reads, and whether they had the fitted types already.

    Raises:
        WorkflowError: they do not match the data in `fit`, or an output's dtype does not hold them.
    """
    output = graph.made[graph.nodes[-1]]
    inputs = output.rows.reads(graph.steps)
    with source.errors("The data cannot be transformed"):
        frame = held_to(source, inputs)
        columns = source.select(inputs.names or None)
        as_fitted = frame is source.frame
        if not as_fitted:
            columns = replace(columns, frame=frame.select(inputs.names))
        expect_narrowed(graph, output, columns.frame)
    return columns, as_fitted


def write_outputs(
    graph: FittedGraph, sink: ParquetSink, source: Source, engine: str, client: Any = None
) -> list[Path]:
    """Write a graph's outputs, as `Workflow.transform_to_parquet` does.

    Args:
        graph: a fitted graph.
        sink: destination of the rows.
        source: the data.
        engine: "auto", "cpu" or "gpu".
        client: client of a cluster, to write there if each output row depends on one input row.

    Raises:
        WorkflowError: the data does not match the data in `fit`, or cannot be read.
    """
    graph = copy.copy(graph)  # which another thread may fit meanwhile
    # Filter and the like write fewer rows than they read, in one query.
    expect_total(source.row_count() if _is_row_by_row(graph) else None)
    if is_gpu(engine) and source.files is not None and source.is_empty():
        engine = "cpu"  # nothing to compute, and cuDF cannot make an empty column of lists
    if client is not None:
        expect_shared(source, client)
        if _is_row_by_row(graph):
            return _write_on_cluster(graph, sink, source, engine, client)
    pieces = _pieces_on_gpu(graph, sink, source, engine)
    if pieces is not None:
        return _write_on_gpu(graph, sink, source, pieces)
    return sink.write(source.checked(_FAILED, _frames(graph, source, engine)), graph.output_schema)


def _write_on_gpu(
    graph: FittedGraph,
    sink: ParquetSink,
    source: Source,
    pieces: Iterator[Callable[[Gpu], RowsOnGpu]],
) -> list[Path]:
    def write(scratch: Path) -> list[Path]:
        with source.errors(_FAILED):
            return sink.write_pieces(pieces, scratch)

    return sink.write_with(write, graph.output_schema)


def _write_on_cluster(
    graph: FittedGraph, sink: ParquetSink, source: Source, engine: str, client: Any
) -> list[Path]:
    columns, as_fitted = _columns(graph, source)
    work = Work(graph.program, expect_shared(columns, client), as_fitted)

    def write(scratch: Path) -> list[Path]:
        at_work("on the cluster")
        with columns.errors(_FAILED):
            return write_on_cluster(work, sink, scratch, engine, client)

    return sink.write_with(write, graph.output_schema)


def _is_row_by_row(graph: FittedGraph) -> bool:
    return all(operator.row_by_row for operator in graph.operators)


def _pieces_on_gpu(
    graph: FittedGraph, sink: ParquetSink, source: Source, engine: str
) -> Iterator[Callable[[Gpu], RowsOnGpu]] | None:
    """Functions that make the rows of whole files, if the GPU can compute and write them."""
    if source.files is None or not (
        is_gpu(engine) and _is_row_by_row(graph) and sink.may_write_on_gpu
    ):
        return None
    columns, as_fitted = _columns(graph, source)
    if not as_fitted or columns.files is None:
        return None
    return transform_on_gpu(graph.program, columns.files, sink.rows_per_query)


def _frames(graph: FittedGraph, source: Source, engine: str) -> Iterator[pl.DataFrame]:
    """The outputs in frames of bounded size, with rows in order."""
    rows = graph.made[graph.nodes[-1]].rows
    columns, as_fitted = _columns(graph, source)
    # Data read with other types is one query, which cannot be cut between row groups.
    can_be_cut = as_fitted if columns.files else not columns.is_query
    if _is_row_by_row(graph) and can_be_cut:
        return transform_pieces(graph.program, columns.pieces(rows_at_once(engine)), engine)
    with columns.errors(_FAILED):
        return transform_stream(rows.select(columns.sound().frame, graph.steps, engine), engine)
