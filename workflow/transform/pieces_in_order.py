"""A program over data of any size: piece by piece, in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import polars as pl

from workflow.data.parquet import ParquetTable
from workflow.engine.engine import collect_all, gpu_runner, in_batches, is_gpu
from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.cudf.rows_on_gpu import Gpu, RowsOnGpu
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.polars.stages import compile_stages, run_stages
from workflow.expressions.program.program import Program

# Rows that a query works on. The intermediate results of 40 columns are then some 100 MB, and the
# overhead of a query is below a hundredth of its time.
CPU_ROWS = 250_000
# A GPU needs larger pieces, and each query copies the vocabularies to it.
GPU_ROWS = 4_000_000
# Pieces that are written from the GPU directly may be larger.
MOST_GPU_ROWS = 32_000_000
# More pieces in flight take more memory without more speed.
MOST_WORKERS = 8

Item = TypeVar("Item")
Made = TypeVar("Made")


def transform_pieces(
    program: Program, pieces: Iterable[pl.LazyFrame], engine: str
) -> Iterator[pl.DataFrame]:
    """The outputs of a program for data of any size, rows in order.

    Each thread has one piece in memory; results wait for their turn, at most one a thread.

    Args:
        program: the program to run on each row.
        pieces: the pieces of the data.
        engine: "auto", "cpu" or "gpu".
    """
    # Polars' own threads compute a query; ours overlap the end of one with the start of the next.
    workers = 1 if is_gpu(engine) else min(MOST_WORKERS, os.cpu_count() or 1)
    return in_order(row_runner(program, engine), pieces, workers)


def rows_at_once(engine: str) -> int:
    """The number of rows in a piece that is efficient on an engine."""
    return GPU_ROWS if is_gpu(engine) else CPU_ROWS


def row_runner(program: Program, engine: str) -> Callable[[pl.LazyFrame], pl.DataFrame]:
    """A function from rows that fit into memory to a program's outputs.

    Args:
        program: the program to run on each row.
        engine: "auto", "cpu" or "gpu".
    """
    program = fold_tables(program)
    if is_gpu(engine):
        return gpu_runner(program)
    stages = compile_stages(program)

    def run(piece: pl.LazyFrame) -> pl.DataFrame:
        # A row group may be much longer than a piece: it is read at once and computed in parts.
        rows = piece.collect()
        starts = range(0, max(rows.height, 1), CPU_ROWS)
        parts = (rows[start : start + CPU_ROWS].lazy() for start in starts)
        return pl.concat([run_stages(part, stages).collect(engine="in-memory") for part in parts])

    return run


def transform_on_gpu(
    program: Program, files: ParquetTable, rows: int, start: int = 0, end: int | None = None
) -> Iterator[Callable[[Gpu], RowsOnGpu]] | None:
    """Functions that compute the outputs on the GPU, each for `rows` rows.

    Args:
        program: the program to run on each row.
        files: the files to read.
        rows: rows of a result.
        start: the index of the first row.
        end: the index after the last row; None for all rows.

    Returns:
        The functions, in order; None if the rows are too many for the GPU's memory.
    """
    if rows > MOST_GPU_ROWS:
        return None
    run = host_and_engine(fold_tables(program))
    return (partial(run, part) for part in files.slices(rows, start, end))


def transform_stream(query: pl.LazyFrame, engine: str) -> Iterator[pl.DataFrame]:
    """The rows of a query that cannot be cut into pieces, in frames of bounded size.

    Polars streams it; a GPU computes all of it at once.
    """
    if is_gpu(engine):
        yield collect_all([query], engine)[0]
        return
    yield pl.DataFrame(schema=query.collect_schema())
    yield from in_batches(query, CPU_ROWS)


def in_order(
    function: Callable[[Item], Made], items: Iterable[Item], workers: int
) -> Generator[Made, None, None]:
    """`map` in threads: results in the order of the items, at most one a thread ahead.

    Example:
        >>> list(in_order(abs, [-1, -2, -3], workers=2))
        [1, 2, 3]
    """
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
