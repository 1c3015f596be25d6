"""What a fitted graph makes of data: as one query, or in pieces that go into files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from .cluster import shared_files, write_on_cluster
from .data import Table, as_table, is_files, parquet_files, polars_errors
from .engine import is_gpu
from .fitted import FittedGraph
from .inputs import held_to
from .sink import ParquetSink
from .transform import transform_on_gpu, transform_pieces, transform_stream


def lazy_outputs(graph: FittedGraph, data: Any, engine: str) -> pl.LazyFrame:
    """What `Workflow.transform` returns, to be collected on an engine.

    Args:
        graph: fitted.
        data: what `Workflow.fit` takes.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the data is not what the graph was fitted to.
    """
    rows = graph.made[graph.nodes[-1]].rows
    frame = held_to(as_table(data), rows.reads(graph.steps))
    return rows.select(frame, graph.steps, engine)


def write_outputs(
    graph: FittedGraph, sink: ParquetSink, data: Any, engine: str, client: Any = None
) -> list[Path]:
    """Write what a graph makes of data, as `Workflow.transform_to_parquet` does.

    Args:
        graph: fitted.
        sink: where the rows go.
        data: what `Workflow.fit` takes.
        engine: "auto", "cpu" or "gpu".
        client: of a cluster, to write on where each row is made of one.

    Raises:
        WorkflowError: the data is not what the graph was fitted to, or cannot be read.
    """
    if client is not None:
        shared_files(data, client)
        if _is_row_by_row(graph):
            return _write_on_cluster(graph, sink, data, engine, client)
    if is_gpu(engine) and is_files(data) and _has_no_rows(as_table(data)):
        engine = "cpu"  # there is nothing to compute, and cuDF makes no empty column of lists
    queries = _queries(graph, sink, data, engine)
    frames = _frames(graph, data, engine) if queries is None else iter(())
    with polars_errors("The data cannot be transformed", data):
        if queries is not None:
            return sink.write_on_gpu(queries, graph.output_schema)
        return sink.write(frames, graph.output_schema)


def _write_on_cluster(
    graph: FittedGraph, sink: ParquetSink, data: Any, engine: str, client: Any
) -> list[Path]:
    # What cannot be is refused before the workers have anything to do.
    is_gpu(engine)
    held_to(as_table(data), graph.program.inputs)

    def write(scratch: Path) -> list[Path]:
        return write_on_cluster(graph.program, data, sink, scratch, engine, client)

    with polars_errors("The data cannot be transformed", data):
        return sink.write_with(write, graph.output_schema)


def _is_row_by_row(graph: FittedGraph) -> bool:
    return all(operator.row_by_row for operator in graph.operators)


def _queries(
    graph: FittedGraph, sink: ParquetSink, data: Any, engine: str
) -> Iterator[pl.LazyFrame] | None:
    """Queries that make the outputs of whole files, where the GPU can run and write them."""
    by_row = _is_row_by_row(graph)
    if not (is_gpu(engine) and by_row and is_files(data)) or not sink.may_write_on_gpu:
        return None
    table = as_table(data)
    if held_to(table, graph.program.inputs) is not table.frame:
        return None
    return transform_on_gpu(graph.program, parquet_files(data), sink.rows_per_query)


def _has_no_rows(table: Table) -> bool:
    return bool(table.frame.select(pl.len()).collect().item() == 0)


def _frames(graph: FittedGraph, data: Any, engine: str) -> Iterator[pl.DataFrame]:
    """The outputs in frames of bounded size, rows in order."""
    table, rows = as_table(data), graph.made[graph.nodes[-1]].rows
    frame = held_to(table, rows.reads(graph.steps))
    by_row = _is_row_by_row(graph)
    # What was read as other types is one query, which cannot be cut between row groups.
    if by_row and is_files(data) and frame is table.frame:
        return transform_pieces(graph.program, data, engine)
    if by_row and not is_files(data) and not isinstance(data, pl.LazyFrame):
        return transform_pieces(graph.program, frame, engine)
    return transform_stream(rows.select(frame, graph.steps, engine), engine)
