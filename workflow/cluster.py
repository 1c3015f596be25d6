"""Fit and transform on a cluster: parts of the data on the workers of Dask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from .data import is_files, parquet_files
from .errors import WorkflowError
from .expressions.program import Program
from .fit import Learn, rows_of_a_pass
from .inputs import with_integers
from .learn import FAN_IN, Learning, Tables, learn_part, learn_parts, merge_tables, split_by_row
from .pieces import pieces, slices
from .sink import ParquetSink
from .transform import row_runner, rows_at_once

# Parts of a worker's thread: enough that all end at about the same time.
PARTS_OF_A_THREAD = 4
# A file that tells the workers to write no further ones.
STOP = "stop"

Item = TypeVar("Item")


def cluster_learner(data: Any, frame: pl.LazyFrame, engine: str, client: Any) -> Learn:
    """What makes operators' tables on a cluster.

    Args:
        data: paths of parquet that every worker can read.
        frame: the same, lazily, with the columns that the graph reads.
        engine: of the workers.
        client: a `dask.distributed.Client`.

    Raises:
        WorkflowError: the data is none that workers can read.
    """
    groups = _shared_out(shared_files(data, client), client)
    names = frame.collect_schema().names()

    def learn(learning: Learning) -> Tables:
        by_row, others = split_by_row(learning)
        tables = learn_part(others, frame, engine)
        if by_row:
            tables |= _on_workers(client, by_row, groups, names, engine)
        return tables

    return learn


def write_on_cluster(
    program: Program, data: Any, sink: ParquetSink, scratch: Path, engine: str, client: Any
) -> list[Path]:
    """Write what a program makes of data, each file on one of a cluster's workers.

    Args:
        program: what to make of each row.
        data: paths of parquet that every worker can read.
        sink: how files are written.
        scratch: a folder that every worker can write to.
        engine: of the workers.
        client: a `dask.distributed.Client`.

    Returns:
        the files, in the order of the rows.

    Raises:
        WorkflowError: a file cannot be read.
    """
    scratch = scratch.absolute()
    rows = list(enumerate(slices(shared_files(data, client), sink.rows_per_file)))
    shared = client.scatter([program], broadcast=True, hash=False)[0]
    waiting = [
        client.submit(_write_files, shared, group, sink, scratch, engine, pure=False)
        for group in _shared_out(rows, client)
    ]
    try:
        written = client.gather(waiting)
    except BaseException:
        # Nobody may write there any more when the folder is removed.
        (scratch / STOP).touch()
        client.gather(waiting, errors="skip")
        raise
    return [path for group in written for path in group]


def shared_files(data: Any, client: Any) -> list[Path]:
    """The files of data that a cluster's workers can read.

    Raises:
        WorkflowError: the data is not of files, or the client is none.
    """
    if not hasattr(client, "scatter"):
        raise WorkflowError(
            "Expected the client of a cluster, as of dask.distributed.Client(address). "
            f"Received: {client!r:.200}."
        )
    if is_files(data):
        return [file.absolute() for file in parquet_files(data)]
    raise WorkflowError(
        "Expected paths of parquet that the cluster's workers can read. "
        f"Received: {type(data).__name__}. Write it with write_parquet, or leave the client out."
    )


def _shared_out(items: Sequence[Item], client: Any) -> list[Sequence[Item]]:
    """Neighbours in groups, some for each thread of the cluster."""
    threads = max(1, sum(client.nthreads().values()))
    count = min(len(items), threads * PARTS_OF_A_THREAD)
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]


def _on_workers(
    client: Any,
    learning: Learning,
    groups: Sequence[Sequence[Path]],
    names: list[str],
    engine: str,
) -> Tables:
    # Once to each worker: what was learnt before may be large.
    shared = client.scatter([learning], broadcast=True, hash=False)[0]
    waiting = [
        client.submit(_learn_files, shared, group, names, engine, pure=False) for group in groups
    ]
    while len(waiting) > 1:
        runs = [waiting[start : start + FAN_IN] for start in range(0, len(waiting), FAN_IN)]
        waiting = [client.submit(merge_tables, shared, run, pure=False) for run in runs]
    tables: Tables = waiting[0].result()
    return tables


def _learn_files(learning: Learning, files: list[Path], names: list[str], engine: str) -> Tables:
    parts = (piece.select(names) for piece in pieces(files, rows_of_a_pass(engine, len(names))))
    return learn_parts(learning, parts, engine)


def _write_files(
    program: Program,
    numbered: Sequence[tuple[int, pl.LazyFrame]],
    sink: ParquetSink,
    scratch: Path,
    engine: str,
) -> list[Path]:
    run = row_runner(program, engine)
    written = []
    for number, rows in numbered:
        if (scratch / STOP).exists():
            break
        own = with_integers(rows, program.inputs).select(program.inputs.names or pl.all())
        made = pl.concat(run(piece) for piece in pieces(own, rows_at_once(engine)))
        written.append(sink.write_file(made, scratch, number))
    return written
