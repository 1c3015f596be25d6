"""Golden rows: raw rows that test a workflow and a network at their limits.

They are defined once. An export answers them from the files that it wrote before it publishes them,
and the first rows warm the server up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import polars as pl

from exporter.errors import ExportError
from exporter.plan.golden_values import GoldenValues, golden_values, vocabularies, whole_columns
from exporter.plan.pipeline import Pipeline
from serving.contract import Contract
from serving.errors import ClientError
from serving.exchange import to_requests
from workflow import WorkflowError
from workflow.data.sources import Source
from workflow.expressions.polars.series import as_times, polars_dtype, to_series
from workflow.schema.column import Array
from workflow.wire.format import WireColumn, decode
from workflow.wire.request_rules import NNZS

MOST_GIVEN = 8
# Lengths of long lists and texts, if no limit is set.
LONG_LIST, LONG_TEXT = 50, 300
_BEYOND_FLOATS = "whole numbers beyond 2**53"
_BOLD = frozenset(
    {
        "long lists",
        "negative numbers",
        "larger numbers",
        _BEYOND_FLOATS,
        "smallest values",
        "largest values",
    }
)

Tensors = dict[str, Array]
_Pick = Callable[[WireColumn, GoldenValues], Any]


@dataclass(frozen=True)
class GoldenRows:
    """Raw rows, as a frame and as requests.

    Attributes:
        names: what each row tests.
        frame: the rows, with the columns that a client sends.
        requests: each row as a client sends it alone.
        warming: the number of rows, from the first, that warm the server up.
        bold: the names of rows that real data may never contain; a network may refuse them.
    """

    names: tuple[str, ...]
    frame: pl.DataFrame
    requests: tuple[Tensors, ...]
    warming: int
    bold: frozenset[str]

    def row(self, name: str) -> dict[str, Any]:
        """A row in the form that a client sees."""
        return self.frame.row(self.names.index(name), named=True)

    def without(self, names: frozenset[str]) -> GoldenRows:
        """The rows except those with some names."""
        numbers = [number for number, name in enumerate(self.names) if name not in names]
        return GoldenRows(
            tuple(self.names[number] for number in numbers),
            self.frame[numbers],
            tuple(self.requests[number] for number in numbers),
            self.warming,
            self.bold,
        )


def golden_rows(pipeline: Pipeline) -> GoldenRows:
    """The golden rows of a pipeline: first the user's, then a row of zeros and other generated ones.

    Raises:
        ExportError: a user's row that a client could not send, or that exceeds a limit.
    """
    columns, limits = pipeline.client_columns, pipeline.options.limits
    user_rows = given_rows(pipeline)
    generated_rows = [
        (name, row, request)
        for name, row in _made(pipeline).items()
        for request in _requests(columns, _frame(columns, [row]))
        if not [*_beyond_limits(limits, columns, request)]
    ]
    names = [f"golden_rows[{number}]" for number in range(len(user_rows))]
    rows = [_decoded(columns, request) for request in user_rows]
    rows.append(_frame(columns, [row for _, row, _ in generated_rows]))
    return GoldenRows(
        (*names, *(name for name, _, _ in generated_rows)),
        pl.concat(rows),
        (*user_rows, *(request for _, _, request in generated_rows)),
        len(user_rows) or 1,
        _BOLD,
    )


def _requests(columns: Sequence[WireColumn], table: pl.DataFrame) -> list[Tensors]:
    """Each row as a client sends it."""
    return to_requests(_sender(columns), table)


def _sender(columns: Sequence[WireColumn]) -> Contract:
    """A model's contract as far as single rows need it."""
    return Contract(tuple(columns), (), (), "", {}, max_batch_size=1)


def given_rows(pipeline: Pipeline) -> list[Tensors]:
    """The user's rows, each as a client sends it alone.

    Raises:
        ExportError: a row that a client could not send, or that exceeds a limit.
    """
    columns, rows = pipeline.client_columns, pipeline.options.golden_rows
    if rows is None:
        return []
    try:
        source = Source.of(rows, known=_sender(columns).input_schema)
        with source.errors("The golden rows cannot be read"):
            have = frozenset(source.names)
            names = [column.name for column in columns if column.name in have]
            # Without any known column a later error names all of them.
            table = source.select(names or None).sound().frame.head(MOST_GIVEN).collect()
        requests = _requests(columns, table)
    except (ClientError, WorkflowError) as error:
        text = error.message if isinstance(error, ClientError) else str(error)
        raise ExportError(f"Expected golden_rows that a client can send. {text}") from error
    if not requests:
        raise ExportError("Expected golden_rows with at least one row. Received: none.")
    for number, tensors in enumerate(requests):
        for reason in _beyond_limits(pipeline.options.limits, columns, tensors):
            raise ExportError(
                f"Expected golden_rows within the limits. Received: row {number}, where {reason}."
            )
    return requests


def _beyond_limits(
    limits: Mapping[str, int], columns: Sequence[WireColumn], tensors: Mapping[str, Any]
) -> Iterator[str]:
    longest, most = limits.get("max_list_length"), limits.get("max_string_bytes")
    for column in columns:
        if longest and column.is_list and (tensors[column.name + NNZS] > longest).any():
            yield f"{column.name} has a list of more than {longest}"
        if most and column.dtype == "string":
            lengths = [len(text) for text in tensors[column.values_name].ravel()]
            if max(lengths, default=0) > most:
                yield f"{column.name} has a string of more than {most} bytes"


def _frame(columns: Sequence[WireColumn], rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return _with_times(
        columns,
        pl.DataFrame(
            {c.name: [row[c.name] for row in rows] for c in columns},
            {c.name: polars_dtype(c.dtype, is_list=c.is_list) for c in columns},
        ),
    )


def _decoded(columns: Sequence[WireColumn], request: Tensors) -> pl.DataFrame:
    """A request's row, as the server decodes it."""
    return _with_times(
        columns,
        pl.DataFrame(
            [
                to_series(decode(c, request), c.name).cast(polars_dtype(c.dtype, is_list=c.is_list))
                for c in columns
            ]
        ),
    )


def _with_times(columns: Sequence[WireColumn], frame: pl.DataFrame) -> pl.DataFrame:
    """Convert microseconds to the dates and times that they count."""
    return frame.with_columns(
        as_times(pl.col(c.name), c.time, is_list=c.is_list) for c in columns if c.time
    )


def _made(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """The rows by name, without duplicates."""
    columns, limits = pipeline.client_columns, pipeline.options.limits
    by_column = vocabularies(pipeline.features.program)
    whole = whole_columns(pipeline.features.program)
    # These two characters take 5 bytes.
    text = "é☃" * (min(limits.get("max_string_bytes", LONG_TEXT), LONG_TEXT) // 5)
    edges = {
        c.name: golden_values(c, by_column.get(c.name, ()), text, c.name in whole) for c in columns
    }
    rows: dict[str, dict[str, Any]] = {}

    def add(name: str, scalar: _Pick, elements: _Pick) -> None:
        row = {c.name: (elements if c.is_list else scalar)(c, edges[c.name]) for c in columns}
        if row not in rows.values():
            rows[name] = row

    # Also beside rows of the user, since health checks ask for it.
    add("zeros", lambda _, e: e.zero, lambda _, e: [e.zero])
    add("usual values", _usual, lambda _, e: [*e.firsts])
    add(
        "nulls",
        lambda c, e: None if c.nullable else e.firsts[0],
        lambda c, _: [None] if c.nullable else None,
    )
    add("unseen values", lambda _, e: e.unseen, lambda _, e: [e.unseen, e.firsts[0]])
    add("empty lists", _usual, lambda *_: [])
    for place in range(max((len(e.lasts) for e in edges.values()), default=0)):
        add(f"last values {place + 1}", partial(_last, place), partial(_lasts, place))
    long = min(limits.get("max_list_length", LONG_LIST), LONG_LIST)
    add(
        "long lists",
        _usual,
        lambda c, e: [*islice(cycle([*e.firsts, e.unseen, *e.lasts, *[None] * c.nullable]), long)],
    )
    add("negative numbers", lambda _, e: e.negative, lambda _, e: [e.negative, e.zero])
    add("larger numbers", lambda _, e: e.larger, lambda _, e: [e.larger, e.negative])
    add(_BEYOND_FLOATS, lambda _, e: e.whole[0], lambda _, e: [*e.whole[:long]])
    add("smallest values", lambda _, e: e.least, lambda _, e: [e.least])
    add("largest values", lambda _, e: e.most, lambda _, e: [e.most, e.least])
    return rows


def _usual(_: WireColumn, edges: GoldenValues) -> Any:
    return edges.firsts[0]


def _last(place: int, _: WireColumn, edges: GoldenValues) -> Any:
    return edges.lasts[min(place, len(edges.lasts) - 1)]


def _lasts(place: int, column: WireColumn, edges: GoldenValues) -> list[Any]:
    return [_last(place, column, edges)]
