"""Transform on a cluster: Dask's workers write files of the outputs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from workflow.data.parquet import ParquetTable, data_errors
from workflow.data.sources import frame_pieces
from workflow.expressions.program.program import Program
from workflow.fit.cluster import (
    despite_lost_workers,
    expect_own_gpus,
    expect_readable,
    expect_writable,
    shared_out,
)
from workflow.graph.input_schema import with_integers

from .parquet_sink import ParquetSink
from .pieces_in_order import row_runner, rows_at_once

# A file that tells the workers to write no further files.
STOP = "stop"


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
        WorkflowError: a worker cannot read a file or write to the folder, or workers would share a GPU.
    """
    expect_own_gpus(engine, client)
    expect_readable(files, client)
    scratch = scratch.absolute()
    expect_writable(sink.folder.absolute(), scratch, client)
    numbers = range(max(1, -(-files.rows // sink.rows_per_file)))

    def write() -> list[Path]:
        shared = client.scatter([(program, files)], broadcast=True, hash=False)[0]
        waiting = [
            client.submit(write_files, shared, group, sink, scratch, engine, pure=False)
            for group in shared_out(numbers, client)
        ]
        try:
            written = client.gather(waiting)
        except BaseException:
            # No worker may write there when the folder is removed.
            (scratch / STOP).touch()
            client.gather(waiting, errors="skip")
            (scratch / STOP).unlink()
            raise
        return [path for group in written for path in group]

    return despite_lost_workers(write)


def write_files(
    shared: tuple[Program, ParquetTable],
    numbers: Sequence[int],
    sink: ParquetSink,
    scratch: Path,
    engine: str,
) -> list[Path]:
    """Write some files on a worker, each first in a folder of its own.

    Args:
        shared: the program, and the files that it reads.
        numbers: the numbers of the files to write.
        sink: settings of the files.
        scratch: the folder for all of them.
        engine: engine of the worker.

    Returns:
        The files, in `scratch`.
    """
    program, files = shared
    run = row_runner(program, engine)
    # A worker that the cluster has lost may still write the same files.
    own = scratch / secrets.token_hex(4)
    own.mkdir()
    written = []
    with data_errors("The data cannot be transformed", files):
        for number in numbers:
            if (scratch / STOP).exists():
                break
            rows = files.slice(number * sink.rows_per_file, sink.rows_per_file)
            wanted = with_integers(rows, program.inputs).select(program.inputs.names or pl.all())
            made = pl.concat(run(piece) for piece in frame_pieces(wanted, rows_at_once(engine)))
            path = sink.write_file(made, own, number)
            written.append(path.replace(scratch / path.name))
    return written
