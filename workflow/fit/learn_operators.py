"""Learning from parts of the data, and merging of the parts' tables into those of the whole."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import polars as pl

from workflow.data.parquet import ParquetTable
from workflow.engine.engine import brought_to_host, collect_all, held_on_gpu, in_batches, is_gpu
from workflow.graph.operator_node import Bound
from workflow.graph.row_set import schema_of
from workflow.operator.feature import OfRows, Partials
from workflow.progress.stage import expect_queries
from workflow.schema.schema import Schema

from .held_rows import HeldRows, columns_of
from .learning_input import Reading, read

# The operators that are ready to learn, with their inputs, by their nodes' numbers.
Learning = Mapping[int, Bound]
# Results of the queries of `Operator.partial`, by the operator's node and the query's name.
Tables = dict[tuple[int, str], pl.DataFrame]
Key = TypeVar("Key", bound=Hashable)

# Polars reads up to 128 row groups ahead of the slowest query, so a pass has at most this many
# rows.
ROWS_OF_A_PASS = 8_000_000
# The parts' tables that wait to be merged: few enough for memory, enough to merge rarely.
FAN_IN = 8
# Whole columns that are read at once.
COLUMNS_AT_ONCE = 4
# The most values of rows that are held in memory: 512 MB at eight bytes a value.
VALUES_OF_A_WIDE_PASS = 64_000_000
# The most bytes of small objects whose rows are held in memory.
BYTES_OF_SMALL_OBJECTS = 128_000_000
# With more columns than this, rows are held in memory while operators learn from them.
WIDE = 200
# An operator with more columns than this has them computed before it learns from such rows.
_SOME = 20


def learn_part(
    learning: Learning,
    frame: pl.LazyFrame,
    engine: str,
    *,
    held: bool = False,
    row_count: int = 0,
) -> Tables:
    """The partial tables of all operators for some rows, in one pass over them.

    Args:
        learning: the operators.
        frame: the rows.
        engine: engine of the queries.
        held: whether all that operators over many columns read of these rows fits into memory.
        row_count: the number of rows, for the progress; 0 if it is unknown.
    """
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    on_host: dict[tuple[int, str], pl.LazyFrame] = {}
    readings: dict[int, Reading] = {}
    whole: dict[tuple[int, str], OfRows] = {}
    in_pieces: Tables = {}
    # Polars' planning time of a query grows with its frame's width, and each column has a query.
    is_wide = held and not is_gpu(engine) and len(frame.collect_schema()) > WIDE
    rows = frame.collect() if is_wide else None
    for number, bound in learning.items():
        with bound.errors():
            reading = readings[number] = read(bound)
            data = frame if rows is None else _narrow(rows, bound.rows.reads(reading.program))
            inputs = bound.rows.select(data, reading.program, engine, hold=True)
            if is_wide and len(reading.columns) > _SOME:
                inputs = HeldRows(inputs.collect())
            grouped = bound.operator.groups_on_host(reading.columns)
            if grouped:
                inputs = brought_to_host(inputs, engine)
            partials = reading.partial(inputs)
        chosen = on_host if grouped and is_gpu(engine) else queries
        chosen |= {(number, name): query for name, query in partials.items()}
        if is_gpu(engine):
            continue  # cuDF adds in an order of its own
        if held:
            row_tables = reading.tables_of_rows(inputs)
            whole |= {(number, name): of_rows for name, of_rows in row_tables.items()}
        else:
            with bound.errors():
                operator_tables = learn_in_pieces(inputs, reading.tables_of_rows, reading.merge)
            in_pieces |= {(number, name): table for name, table in operator_tables.items()}
    keys_from_rows = whole.keys() | in_pieces.keys()
    queries = {key: query for key, query in queries.items() if key not in keys_from_rows}
    expect_queries(len(queries) + len(whole) + len(on_host), row_count)
    tables = _collect(queries, engine) | of_rows_at_once(whole) | _collect(on_host, "cpu")
    tables |= in_pieces
    expect_queries(1, 0)
    return tables | _collect(_element_counts(readings, tables), "cpu")


def learn_parts(learning: Learning, files: ParquetTable, rows: int, engine: str) -> Tables:
    """The tables of files, part by part, in bounded memory.

    Args:
        learning: the operators.
        files: the rows.
        rows: the most rows of a part.
        engine: engine of the queries.
    """
    names = _names_read(learning)
    # Of small objects, each further read would mostly wait for the store.
    is_held = files.are_small_objects
    if is_held:
        limits = VALUES_OF_A_WIDE_PASS // max(1, len(names)), files.rows_of(BYTES_OF_SMALL_OBJECTS)
        rows = min(rows, *limits)

    def pieces() -> Iterator[Tables]:
        for part, count in zip(files.pieces(rows), files.rows_of_pieces(rows), strict=True):
            columns = part.select(n for n in part.collect_schema() if n in names)
            if is_held:
                columns = columns.collect(engine="streaming").lazy()
            # Not bound to a name: a GPU holds the rows only while they are learnt from.
            yield learn_part(
                learning, held_on_gpu(columns, engine), engine, held=True, row_count=count
            )

    return _merged(learning, pieces())


def learn_query(learning: Learning, frame: pl.LazyFrame) -> Tables:
    """The tables of a query's rows on the CPU, piece by piece, in bounded memory.

    Args:
        learning: the operators.
        frame: the query, of a row or more.
    """
    have, names = frame.collect_schema(), _names_read(learning)
    columns = [name for name in have if name in names]
    rows = min(ROWS_OF_A_PASS, VALUES_OF_A_WIDE_PASS // max(1, len(columns)))
    pieces = in_batches(frame.select(columns or have.names()[:1]), rows)
    return _merged(
        learning,
        (learn_part(learning, p.lazy(), "cpu", held=True, row_count=p.height) for p in pieces),
    )


def _names_read(learning: Learning) -> set[str]:
    return {name for bound in learning.values() for name in bound.rows.reads(bound.program)}


def _merged(learning: Learning, parts: Iterable[Tables]) -> Tables:
    waiting: list[Tables] = []
    for part in parts:
        if not part:  # what no part has need not be read on
            return part
        waiting.append(part)
        if len(waiting) == FAN_IN:
            waiting = [merge_tables(learning, waiting)]
    return waiting[0] if len(waiting) == 1 else merge_tables(learning, waiting)


def merge_tables(learning: Learning, parts: Sequence[Tables]) -> Tables:
    """Merge the tables of several parts."""
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    tables = [by_operator(part) for part in parts]
    for number, bound in learning.items():
        if not tables[0][number]:
            continue  # The operator made no query: it has a given table.
        above = _concatenated([part[number] for part in tables])
        merged = bound.operator.merge(above, schema_of(bound.columns))
        queries |= {(number, name): query for name, query in merged.items()}
    return _collect(queries, "cpu")


def _concatenated(parts: Sequence[Mapping[str, pl.DataFrame]]) -> Partials:
    """The tables of several parts one after another."""
    # A merged count may be wider than one that was not merged.
    return {
        name: pl.concat([part[name].lazy() for part in parts], how="vertical_relaxed")
        for name in parts[0]
    }


def learn_in_pieces(
    frame: pl.LazyFrame,
    tables: Callable[[pl.LazyFrame], Mapping[str, OfRows]],
    merge: Callable[[Partials], Partials],
) -> dict[str, pl.DataFrame]:
    """Tables that functions make of rows, in bounded memory.

    Args:
        frame: the rows.
        tables: the queries and functions for some of the rows.
        merge: combines the concatenated tables of several pieces.

    Example:
        >>> total = lambda frame: {"sum": (frame, pl.DataFrame.sum)}
        >>> merge = lambda parts: {"sum": parts["sum"].sum()}
        >>> learn_in_pieces(pl.LazyFrame({"a": [1, 2]}), total, merge)["sum"].item()
        3
    """
    if not tables(frame):
        return {}
    columns = len(frame.collect_schema())
    waiting: list[dict[str, pl.DataFrame]] = []
    for piece in in_batches(frame, min(ROWS_OF_A_PASS, VALUES_OF_A_WIDE_PASS // columns)):
        waiting.append(of_rows_at_once(tables(HeldRows(piece))))
        if len(waiting) == FAN_IN:
            waiting = [_collect(merge(_concatenated(waiting)), "cpu")]
    if len(waiting) > 1:
        waiting = [_collect(merge(_concatenated(waiting)), "cpu")]
    return waiting[0] if waiting else of_rows_at_once(tables(frame.clear()))


def _narrow(rows: pl.DataFrame, columns: Schema) -> pl.LazyFrame:
    """Some columns of rows in memory; all of them if only the number of rows matters."""
    return (columns_of(rows, columns.names) if columns else rows).lazy()


def _collect(queries: Mapping[Key, pl.LazyFrame], engine: str) -> dict[Key, pl.DataFrame]:
    return dict(zip(queries, collect_all(list(queries.values()), engine), strict=True))


def of_rows_at_once(wanted: Mapping[Key, OfRows]) -> dict[Key, pl.DataFrame]:
    """Tables that functions make of rows, in threads.

    Args:
        wanted: for each table a query of a few columns, and the function. Of the columns, twice
            `COLUMNS_AT_ONCE` fit into memory.

    Example:
        >>> column = pl.LazyFrame({"a": [1, 2]})
        >>> of_rows_at_once({"sum": (column, pl.DataFrame.sum)})["sum"].item()
        3
    """
    tables: dict[Key, pl.DataFrame] = {}
    before: dict[Key, Future[pl.DataFrame]] = {}
    with ThreadPoolExecutor(min(2 * COLUMNS_AT_ONCE, os.cpu_count() or 1)) as pool:
        for keys in _few_columns(wanted):
            rows = collect_all([wanted[key][0] for key in keys], "cpu")
            # While these are processed, the next ones are read.
            started = {
                key: pool.submit(wanted[key][1], data) for key, data in zip(keys, rows, strict=True)
            }
            tables |= {key: table.result() for key, table in before.items()}
            before = started
        return tables | {key: table.result() for key, table in before.items()}


def _few_columns(tables: Mapping[Key, OfRows]) -> Iterator[list[Key]]:
    """Tables of `COLUMNS_AT_ONCE` columns together, or one of more."""
    keys: list[Key] = []
    columns = 0
    for key, (query, _) in tables.items():
        width = len(query.collect_schema())
        if keys and columns + width > COLUMNS_AT_ONCE:
            yield keys
            keys, columns = [], 0
        keys.append(key)
        columns += width
    if keys:
        yield keys


def _element_counts(
    readings: Mapping[int, Reading], tables: Tables
) -> dict[tuple[int, str], pl.LazyFrame]:
    """The tables of elements, which replace tables that count positions of lists."""
    queries: dict[tuple[int, str], pl.LazyFrame] = {}
    node_tables = by_operator(tables)
    for number, reading in readings.items():
        if not reading.cuts:
            continue
        counts = reading.of_elements(node_tables[number])
        queries |= {(number, name): query for name, query in counts.items()}
    return queries


def by_operator(tables: Tables) -> Mapping[int, dict[str, pl.DataFrame]]:
    """The tables of each operator by their names; empty for one that made no query.

    Example:
        >>> by_operator({(3, "sum"): pl.DataFrame({"a": [1]})})[3]["sum"].item()
        1
    """
    node_tables: dict[int, dict[str, pl.DataFrame]] = defaultdict(dict)
    for (number, name), table in tables.items():
        node_tables[number][name] = table
    return node_tables


def split_by_row(learning: Learning) -> tuple[Learning, Learning]:
    """The operators that can learn from parts of the data, and those that need all rows at once."""
    by_row = {
        number: bound
        for number, bound in learning.items()
        if bound.rows.is_row_by_row(bound.program)
    }
    return by_row, {n: bound for n, bound in learning.items() if n not in by_row}
