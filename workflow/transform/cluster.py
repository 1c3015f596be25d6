"""Fit and transform on a cluster: Dask's workers process parts of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from workflow.data.parquet import ParquetTable, data_errors
from workflow.data.sources import Source, frame_pieces
from workflow.errors import WorkflowError
from workflow.expressions.program.program import Program
from workflow.fit.fit_graph import Learn, rows_of_a_pass
from workflow.fit.learn_operators import (
    FAN_IN,
    Learning,
    Tables,
    learn_part,
    learn_parts,
    merge_tables,
    split_by_row,
)
from workflow.graph.input_schema import with_integers

from .parquet_sink import ParquetSink
from .pieces_in_order import row_runner, rows_at_once

# Parts for each thread of a worker: enough that all end at about the same time.
PARTS_OF_A_THREAD = 4
# A file that tells the workers to write no further files.
STOP = "stop"

Item = TypeVar("Item")


def cluster_learner(source: Source, engine: str, client: Any) -> Learn:
    """Function that makes operators' tables on a cluster.

    Args:
        source: the columns that the graph reads, from parquet that every worker can read.
        engine: engine of the workers.
        client: a `dask.distributed.Client`.

    Raises:
        WorkflowError: workers cannot read the data.
    """
    files = expect_shared(source, client)
    groups = [
        files.part(numbers[0], numbers[-1] + 1)
        for numbers in _shared_out(range(len(files.files)), client)
    ]

    def learn(learning: Learning) -> Tables:
        by_row, others = split_by_row(learning)
        tables = learn_part(others, source.sound().frame, engine) if others else {}
        if by_row:
            tables |= _on_workers(client, by_row, groups, engine)
        return tables

    return learn


def write_on_cluster(
    program: Program,
    files: ParquetTable,
    sink: ParquetSink,
    scratch: Path,
    engine: str,
    client: Any,
) -> list[Path]:
    """Write a program's outputs, each file on one of a cluster's workers.

    Args:
        program: the program to run on each row.
        files: files that every worker can read.
        sink: settings of the files to write.
        scratch: a folder that every worker can write to.
        engine: engine of the workers.
        client: a `dask.distributed.Client`.

    Returns:
        The files, in the order of the rows.

    Raises:
        WorkflowError: a file cannot be read.
    """
    scratch = scratch.absolute()
    numbers = range(max(1, -(-files.rows // sink.rows_per_file)))
    shared = client.scatter([(program, files)], broadcast=True, hash=False)[0]
    waiting = [
        client.submit(_write_files, shared, group, sink, scratch, engine, pure=False)
        for group in _shared_out(numbers, client)
    ]
    try:
        written = client.gather(waiting)
    except BaseException:
        # No worker may write there when the folder is removed.
        (scratch / STOP).touch()
        client.gather(waiting, errors="skip")
        raise
    return [path for group in written for path in group]


def expect_shared(source: Source, client: Any) -> ParquetTable:
    """The files of a source, which a cluster's workers have to be able to read.

    Raises:
        WorkflowError: the data is not in files, or the client is invalid.
    """
    if not hasattr(client, "scatter"):
        raise WorkflowError(
            "Expected the client of a cluster, as of dask.distributed.Client(address). "
            f"Received: {client!r:.200}."
        )
    if source.files is not None:
        return source.files.absolute()
    raise WorkflowError(
        "Expected paths of parquet that the cluster's workers can read. Received: a frame in this "
        "process. Write it with write_parquet, or leave the client out."
    )


def _shared_out(items: Sequence[Item], client: Any) -> list[Sequence[Item]]:
    """Consecutive items in groups, a few for each thread of the cluster."""
    threads = max(1, sum(client.nthreads().values()))
    count = min(len(items), threads * PARTS_OF_A_THREAD)
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]


def _on_workers(
    client: Any,
    learning: Learning,
    groups: Sequence[ParquetTable],
    engine: str,
) -> Tables:
    # Once to each worker: earlier states may be large.
    shared = client.scatter([learning], broadcast=True, hash=False)[0]
    waiting = [client.submit(_learn_files, shared, group, engine, pure=False) for group in groups]
    while len(waiting) > 1:
        runs = [waiting[start : start + FAN_IN] for start in range(0, len(waiting), FAN_IN)]
        waiting = [client.submit(merge_tables, shared, run, pure=False) for run in runs]
    tables: Tables = waiting[0].result()
    return tables


def _learn_files(learning: Learning, files: ParquetTable, engine: str) -> Tables:
    with data_errors("The data cannot be fitted to", files):
        return learn_parts(
            learning, files.pieces(rows_of_a_pass(engine, len(files.schema))), engine
        )


def _write_files(
    shared: tuple[Program, ParquetTable],
    numbers: Sequence[int],
    sink: ParquetSink,
    scratch: Path,
    engine: str,
) -> list[Path]:
    program, files = shared
    run = row_runner(program, engine)
    written = []
    with data_errors("The data cannot be transformed", files):
        for number in numbers:
            if (scratch / STOP).exists():
                break
            rows = files.slice(number * sink.rows_per_file, sink.rows_per_file)
            own = with_integers(rows, program.inputs).select(program.inputs.names or pl.all())
            made = pl.concat(run(piece) for piece in frame_pieces(own, rows_at_once(engine)))
            written.append(sink.write_file(made, scratch, number))
    return written
