"""Fitting on a cluster: its workers learn from groups of files, and merge what they have learnt.

A table with a row for each key, such as the counts of a vocabulary, is cut into parts by a hash of
the key, so that no worker holds it whole; all rows of a key meet in one part. Many smaller tables
are shared out among the parts, so that several workers merge them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from operator import getitem
from typing import Any

import numpy as np
import polars as pl

from workflow.data.parquet import ParquetTable, data_errors
from workflow.data.sources import Source
from workflow.graph.row_set import schema_of
from workflow.schema.column import Array

from .cluster import (
    connected,
    despite_lost_workers,
    expect_own_gpus,
    expect_readable,
    expect_shared,
    reaches_workers,
    rows_of_a_task,
    sent_to_workers,
    shared_out,
)
from .fit_graph import Learn, rows_of_a_pass
from .hash_parts import hash_parts
from .learn_operators import (
    FAN_IN,
    Learning,
    Tables,
    by_operator,
    learn_part,
    learn_parts,
    merge_tables,
    split_by_row,
)

# A task's rows: its tables, at most one row for each, fit into memory.
ROWS_OF_A_TASK = 64_000_000
# Rows of a part of a table: some 100 MB for numbers, and several parts are merged at once.
ROWS_OF_A_PART = 4_000_000


@dataclass(frozen=True)
class Parts:
    """The parts in which tables are merged.

    Attributes:
        count: the number of parts.
        of: for each table that has a row for each key its first part, and the number of consecutive
            parts it is cut into. Other tables are in the first part.
    """

    count: int
    of: Mapping[tuple[int, str], tuple[int, int]]


class Held:
    """Tables on a worker, with their size, by which Dask moves results to the disk.

    They travel in Arrow's format, in buffers that Dask sends as they are: a pickle of Polars' frames takes
    2.6 times as long (46 MB on two shared cores of an AMD EPYC, 2026-11-25).

    Example:
        >>> Held({(0, "city"): pl.DataFrame({"a": [1, 2, 3]})}).__sizeof__() >= 24
        True
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum(int(t.estimated_size()) for t in self.tables.values())

    def __getstate__(self) -> dict[tuple[int, str], Array]:
        return {key: _packed(table) for key, table in self.tables.items()}

    def __setstate__(self, packed: Mapping[tuple[int, str], Array]) -> None:
        self.tables = {key: pl.read_ipc_stream(BytesIO(data.data)) for key, data in packed.items()}


def _packed(table: pl.DataFrame) -> Array:
    """The bytes of a table as an array of numpy, whose buffer Dask sends as it is."""
    file = BytesIO()
    table.write_ipc_stream(file, compression="uncompressed", compat_level=pl.CompatLevel.newest())
    return np.frombuffer(file.getbuffer(), np.uint8)


def cluster_learner(source: Source, engine: str, client: Any) -> Learn:
    """Function that makes operators' tables on a cluster.

    Args:
        source: the columns that the graph reads, from parquet that every worker can read.
        engine: engine of the workers.
        client: a `dask.distributed.Client`.

    Raises:
        WorkflowError: workers cannot read the data, or would share a GPU.
    """
    with connected(client):
        files = expect_shared(source, client)
        expect_readable(files, client)
        expect_own_gpus(engine, client)

    def learn(learning: Learning) -> Tables:
        by_row, at_once = split_by_row(learning)
        tables = learn_part(at_once, source.sound().frame, engine) if at_once else {}
        if by_row:
            tables |= despite_lost_workers(
                lambda: _on_workers(client, by_row, files, engine), client
            )
        return tables

    return learn


def _on_workers(client: Any, learning: Learning, files: ParquetTable, engine: str) -> Tables:
    # Once to each worker: earlier states may be large.
    shared = sent_to_workers(client, learning)
    fewest = -(-rows_of_a_task(engine) * len(files.files) // max(files.rows, 1))
    numbers = shared_out(range(len(files.files)), client, files.rows // ROWS_OF_A_TASK, fewest)
    groups = [files.part(group[0], group[-1] + 1) for group in numbers]
    learnt = [client.submit(_learn_files, shared, g, engine, pure=False) for g in groups]
    heights = client.gather([client.submit(_heights, future, pure=False) for future in learnt])
    parts = _merge(client, shared, learnt, _parts(learning, heights, len(client.nthreads())))
    del learnt
    results = client.gather(parts, direct=reaches_workers(client) or None)
    return _together([part.tables for part in results])


def _merge(client: Any, shared: Any, learnt: list[Any], parts: Parts) -> list[Any]:
    """Futures of what the client needs of each part, merged over all groups of files."""
    whole = [learnt]
    if parts.count > 1:
        cut = [client.submit(_cut, shared, future, parts, pure=False) for future in learnt]
        numbers = range(parts.count)
        whole = [[client.submit(getitem, future, n, pure=False) for future in cut] for n in numbers]
    merged = [_merge_part(client, shared, futures) for futures in whole]
    return [client.submit(_condensed, shared, future, pure=False) for future in merged]


def _merge_part(client: Any, shared: Any, waiting: list[Any]) -> Any:
    while len(waiting) > 1:
        runs = [waiting[start : start + FAN_IN] for start in range(0, len(waiting), FAN_IN)]
        waiting = [client.submit(_merged, shared, run, pure=False) for run in runs]
    return waiting[0]


def _parts(
    learning: Learning, heights: Iterable[Mapping[tuple[int, str], int]], workers: int
) -> Parts:
    """The parts of tables, of about equal numbers of rows.

    Args:
        learning: the operators.
        heights: the rows of each group's tables; together at least as many as the merged ones.
        workers: the number of workers. There is a part for each where the tables have that many rows.
    """
    rows: dict[tuple[int, str], int] = defaultdict(int)
    for group in heights:
        for key, height in group.items():
            rows[key] += height
    counts = {
        (number, name): max(keyed.parts, -(-rows[number, name] // ROWS_OF_A_PART))
        for number, bound in learning.items()
        for name, keyed in bound.operator.keyed_tables(schema_of(bound.columns)).items()
    }
    spread = min(workers, sum(rows[key] for key in counts) // ROWS_OF_A_PART)
    loads = [0.0] * max(1, spread, *counts.values())
    of: dict[tuple[int, str], tuple[int, int]] = {}
    for key in sorted(counts, key=lambda key: rows[key] / counts[key], reverse=True):
        first = min(range(len(loads)), key=loads.__getitem__) if counts[key] == 1 else 0
        of[key] = first, counts[key]
        for part in range(first, first + counts[key]):
            loads[part] += rows[key] / counts[key]
    return Parts(len(loads), of)


def _learn_files(learning: Learning, files: ParquetTable, engine: str) -> Held:
    with data_errors("The data cannot be fitted to", files):
        rows = rows_of_a_pass(engine, len(files.schema))
        return Held(learn_parts(learning, files, rows, engine))


def _heights(learnt: Held) -> dict[tuple[int, str], int]:
    return {key: table.height for key, table in learnt.tables.items()}


def _cut(learning: Learning, learnt: Held, parts: Parts) -> list[Held]:
    part_tables: list[Tables] = [{} for _ in range(parts.count)]
    for (number, name), table in learnt.tables.items():
        first, count = parts.of.get((number, name), (0, 1))
        cut = [table]
        if count > 1:
            bound = learning[number]
            keyed = bound.operator.keyed_tables(schema_of(bound.columns))
            cut = hash_parts(table, keyed[name].keys, count)
        for part, rows in enumerate(cut, first):
            part_tables[part][number, name] = rows
    return [Held(part) for part in part_tables]


def _merged(learning: Learning, parts: Sequence[Held]) -> Held:
    return Held(merge_tables(learning, [part.tables for part in parts]))


def _condensed(learning: Learning, part: Held) -> Held:
    """Tables for the operators' `finish`, of a part that is merged over all groups of files."""
    tables: Tables = {}
    for number, operator_tables in by_operator(part.tables).items():
        bound = learning[number]
        condensed = bound.operator.condense(operator_tables, schema_of(bound.columns))
        tables |= {(number, name): table for name, table in condensed.items()}
    return Held(tables)


def _together(parts: Sequence[Tables]) -> Tables:
    groups: dict[tuple[int, str], list[pl.DataFrame]] = defaultdict(list)
    for part in parts:
        for key, table in part.items():
            groups[key].append(table)
    return {key: pl.concat(tables, how="vertical_relaxed") for key, tables in groups.items()}
