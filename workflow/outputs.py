"""What a fitted graph makes of data: as one query, or in pieces that go into files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from .cluster import expect_shared, write_on_cluster
from .data import Source
from .engine import is_gpu
from .fitted import FittedGraph
from .inputs import held_to
from .narrowed_outputs import expect_narrowed
from .sink import ParquetSink
from .transform import rows_at_once, transform_on_gpu, transform_pieces, transform_stream


def lazy_outputs(graph: FittedGraph, source: Source, engine: str) -> pl.LazyFrame:
    """What `Workflow.transform` returns, to be collected on an engine.

    Args:
        graph: fitted.
        source: the data.
        engine: "auto", "cpu" or "gpu".

    Raises:
        WorkflowError: the data is not what the graph was fitted to.
    """
    frame = _read(graph, source)
    return graph.made[graph.nodes[-1]].rows.select(frame, graph.steps, engine)


def _read(graph: FittedGraph, source: Source) -> pl.LazyFrame:
    """The data, held to what the graph was fitted to and to the dtypes that its outputs have."""
    output = graph.made[graph.nodes[-1]]
    frame = held_to(source, output.rows.reads(graph.steps))
    expect_narrowed(graph, output, frame)
    return frame


def write_outputs(
    graph: FittedGraph, sink: ParquetSink, source: Source, engine: str, client: Any = None
) -> list[Path]:
    """Write what a graph makes of data, as `Workflow.transform_to_parquet` does.

    Args:
        graph: fitted.
        sink: where the rows go.
        source: the data.
        engine: "auto", "cpu" or "gpu".
        client: of a cluster, to write on where each row is made of one.

    Raises:
        WorkflowError: the data is not what the graph was fitted to, or cannot be read.
    """
    if client is not None:
        expect_shared(source, client)
        if _is_row_by_row(graph):
            return _write_on_cluster(graph, sink, source, engine, client)
    if is_gpu(engine) and source.files is not None and source.is_empty():
        engine = "cpu"  # there is nothing to compute, and cuDF makes no empty column of lists
    queries = _queries(graph, sink, source, engine)
    frames = _frames(graph, source, engine) if queries is None else iter(())
    with source.errors("The data cannot be transformed"):
        if queries is not None:
            return sink.write_on_gpu(queries, graph.output_schema)
        return sink.write(frames, graph.output_schema)


def _write_on_cluster(
    graph: FittedGraph, sink: ParquetSink, source: Source, engine: str, client: Any
) -> list[Path]:
    # What cannot be is refused before the workers have anything to do.
    is_gpu(engine)
    _read(graph, source)
    files = expect_shared(source, client)

    def write(scratch: Path) -> list[Path]:
        return write_on_cluster(graph.program, files, sink, scratch, engine, client)

    with source.errors("The data cannot be transformed"):
        return sink.write_with(write, graph.output_schema)


def _is_row_by_row(graph: FittedGraph) -> bool:
    return all(operator.row_by_row for operator in graph.operators)


def _queries(
    graph: FittedGraph, sink: ParquetSink, source: Source, engine: str
) -> Iterator[pl.LazyFrame] | None:
    """Queries that make the outputs of whole files, where the GPU can run and write them."""
    files = source.files
    if files is None or not (is_gpu(engine) and _is_row_by_row(graph) and sink.may_write_on_gpu):
        return None
    if held_to(source, graph.program.inputs) is not source.frame:
        return None
    expect_narrowed(graph, graph.made[graph.nodes[-1]], source.frame)
    return transform_on_gpu(graph.program, files, sink.rows_per_query)


def _frames(graph: FittedGraph, source: Source, engine: str) -> Iterator[pl.DataFrame]:
    """The outputs in frames of bounded size, rows in order."""
    rows = graph.made[graph.nodes[-1]].rows
    frame = _read(graph, source)
    # What was read as other types is one query, which cannot be cut between row groups.
    can_be_cut = frame is source.frame if source.files else not source.is_query
    if _is_row_by_row(graph) and can_be_cut:
        pieces = replace(source, frame=frame).pieces(rows_at_once(engine))
        return transform_pieces(graph.program, pieces, engine)
    return transform_stream(rows.select(frame, graph.steps, engine), engine)
