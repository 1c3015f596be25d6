"""Fitting on a cluster: parts of the data on the workers of Dask, merged there as a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from .data import parquet_files
from .errors import WorkflowError
from .fit import Learn, rows_of_a_pass
from .learn import FAN_IN, Learning, Tables, learn_part, learn_parts, merge_tables, split_by_row
from .pieces import pieces

# Parts of a worker's thread: enough that all end at about the same time.
PARTS_OF_A_THREAD = 4


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
    if not isinstance(data, str | Path | list | tuple):
        raise WorkflowError(
            "Expected paths of parquet that the cluster's workers can read. "
            f"Received: {type(data).__name__}. Write it with write_parquet, or fit without a client."
        )
    files = [file.absolute() for file in parquet_files(data)]
    names = frame.collect_schema().names()
    threads = max(1, sum(client.nthreads().values()))
    count = min(len(files), threads * PARTS_OF_A_THREAD)
    groups = [files[len(files) * n // count : len(files) * (n + 1) // count] for n in range(count)]

    def learn(learning: Learning) -> Tables:
        by_row, others = split_by_row(learning)
        tables = learn_part(others, frame, engine)
        if by_row:
            tables |= _on_workers(client, by_row, groups, names, engine)
        return tables

    return learn


def _on_workers(
    client: Any, learning: Learning, groups: list[list[Path]], names: list[str], engine: str
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
