"""Transform on a cluster: Dask's workers write files of the outputs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import polars as pl

from workflow.data.parquet import ParquetTable, data_errors
from workflow.data.sources import frame_pieces
from workflow.engine.engine import is_gpu
from workflow.expressions.cudf.rows_on_gpu import Gpu, RowsOnGpu
from workflow.expressions.program.program import Program
from workflow.fit.cluster import (
    connected,
    despite_lost_workers,
    expect_own_gpus,
    expect_readable,
    expect_writable,
    rows_of_a_task,
    sent_to_workers,
    shared_out,
)
from workflow.graph.input_schema import with_integers

from .parquet_sink import ParquetSink
from .pieces_in_order import row_runner, rows_at_once, transform_on_gpu

# A file that tells the workers to write no further files.
STOP = "stop"

Item = TypeVar("Item")


class Work(NamedTuple):
    """The work of every worker.

    Attributes:
        program: the program to run on each row.
        files: the files that it reads.
        is_as_fitted: whether their columns have the types of the data in `fit`.
    """

    program: Program
    files: ParquetTable
    is_as_fitted: bool


def write_on_cluster(
    work: Work,
    sink: ParquetSink,
    scratch: Path,
    engine: str,
    client: Any,
) -> list[Path]:
    """Write a program's outputs, each file on one of a cluster's workers.

    Args:
        work: the program, and files that every worker can read.
        sink: settings of the files to write.
        scratch: a folder that every worker can write to.
        engine: engine of the workers.
        client: a `dask.distributed.Client`.

    Returns:
        The files, in the order of the rows.

    Raises:
        WorkflowError: a worker cannot read a file or write to the folder, or workers would share a GPU.
    """
    scratch = scratch.absolute()
    with connected(client):
        expect_own_gpus(engine, client)
        expect_readable(work.files, client)
        expect_writable(sink.folder.absolute(), scratch, client)
    numbers = range(max(1, -(-work.files.rows // sink.rows_per_file)))
    fewest = -(-rows_of_a_task(engine) // sink.rows_per_file)

    def write() -> list[Path]:
        shared = sent_to_workers(client, work)
        waiting = [
            client.submit(write_files, shared, group, sink, scratch, engine, pure=False)
            for group in shared_out(numbers, client, fewest=fewest)
        ]
        try:
            groups = client.gather(waiting)
        except BaseException:
            # No worker may write there when the folder is removed.
            (scratch / STOP).touch()
            client.gather(waiting, errors="skip")
            (scratch / STOP).unlink()
            raise
        return [path for group in groups for path in group]

    return despite_lost_workers(write, client)


def write_files(
    work: Work,
    numbers: Sequence[int],
    sink: ParquetSink,
    scratch: Path,
    engine: str,
) -> list[Path]:
    """Write some files on a worker, each first in a folder of its own.

    Args:
        work: the program, and the files that it reads.
        numbers: the numbers of the files to write, which are consecutive.
        sink: settings of the files.
        scratch: the folder for all of them.
        engine: engine of the worker.

    Returns:
        The files, in `scratch`.
    """
    # A worker that the cluster has lost may still write the same files.
    folder = scratch / secrets.token_hex(4)
    folder.mkdir()

    def until_stopped(items: Iterable[Item]) -> Iterator[Item]:
        return takewhile(lambda _: not (scratch / STOP).exists(), items)

    with data_errors("The data cannot be transformed", work.files):
        pieces = _pieces_on_gpu(work, numbers, sink, engine)
        if pieces is not None:
            paths = sink.write_pieces(until_stopped(pieces), folder, numbers[0])
        else:
            frames = until_stopped(_frames(work, numbers, sink, engine))
            paths = sink.write_frames(frames, folder, numbers[0])
    return [path.replace(scratch / path.name) for path in paths]


def _pieces_on_gpu(
    work: Work, numbers: Sequence[int], sink: ParquetSink, engine: str
) -> Iterator[Callable[[Gpu], RowsOnGpu]] | None:
    if not (is_gpu(engine) and work.is_as_fitted and sink.may_write_on_gpu):
        return None
    start, end = (number * sink.rows_per_file for number in (numbers[0], numbers[-1] + 1))
    return transform_on_gpu(work.program, work.files, sink.rows_per_query, start, end)


def _frames(
    work: Work, numbers: Sequence[int], sink: ParquetSink, engine: str
) -> Iterator[pl.DataFrame]:
    """The rows of each file."""
    run, inputs = row_runner(work.program, engine), work.program.inputs
    for number in numbers:
        rows = work.files.slice(number * sink.rows_per_file, sink.rows_per_file)
        columns = with_integers(rows, inputs).select(inputs.names or pl.all())
        yield pl.concat(run(piece) for piece in frame_pieces(columns, rows_at_once(engine)))
