"""Golden rows: raw rows that show what a workflow and a network do at their edges.

They are defined once. An export answers them from the files that it wrote before anybody else
sees these, and the first of them warm the server up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import polars as pl

from exporter.errors import ExportError
from exporter.pipeline import Pipeline
from serving.contract import Contract
from serving.errors import ClientError
from serving.exchange import to_requests
from workflow import WorkflowError
from workflow.data import Source
from workflow.dtypes import DTYPES
from workflow.expressions.column import Array, Column, Strings
from workflow.expressions.program import Program
from workflow.expressions.series import polars_dtype, to_series
from workflow.wire import NNZS, WireColumn, decode, null_code

MOST_GIVEN = 8
# Lists of so many values and texts of so many characters are long, where no limit is set.
LONG_LIST, LONG_TEXT = 50, 300
# A column may be looked up in several vocabularies; each has an end.
MOST_VOCABULARIES = 4
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all times that travel
_UNSEEN = " that no vocabulary holds"
# A negative number and a larger one, by kind of dtype.
_NUMBERS = {"int": (-7, 100), "uint": (3, 100), "float": (-2.5, 1234.5), "string": ("a", "b c")}
_BOLD = frozenset(
    {"long lists", "negative numbers", "larger numbers", "smallest values", "largest values"}
)
# Verbs that hand a value on; what is looked up behind them is the client's own value.
_HANDING_ON = {"cast", "fill_null", "list_slice", "list_pad"}

Tensors = dict[str, Array]
_Pick = Callable[[WireColumn, "_Edges"], Any]


@dataclass(frozen=True)
class GoldenRows:
    """Raw rows, as a frame and as requests.

    Attributes:
        names: what each row is about.
        frame: the rows, of the columns that a client sends.
        requests: each row as a client sends it by itself.
        warming: so many rows from the first on warm the server up.
        bold: the names of rows that no data may ever hold: a network may refuse those.
    """

    names: tuple[str, ...]
    frame: pl.DataFrame
    requests: tuple[Tensors, ...]
    warming: int
    bold: frozenset[str]

    def row(self, name: str) -> dict[str, Any]:
        """A row as a client sees it."""
        return self.frame.row(self.names.index(name), named=True)

    def without(self, names: frozenset[str]) -> GoldenRows:
        """The rows but those of some names."""
        kept = [number for number, name in enumerate(self.names) if name not in names]
        return GoldenRows(
            tuple(self.names[number] for number in kept),
            self.frame[kept],
            tuple(self.requests[number] for number in kept),
            self.warming,
            self.bold,
        )


@dataclass(frozen=True)
class _Edges:
    """Values of one column: those that it knows, by vocabulary, and others of its dtype."""

    firsts: tuple[Any, ...]
    lasts: tuple[Any, ...]
    zero: Any
    unseen: Any
    negative: Any
    larger: Any
    least: Any
    most: Any


def golden_rows(pipeline: Pipeline) -> GoldenRows:
    """The golden rows of a pipeline: first the user's, or a row of zeros, then those made here.

    Raises:
        ExportError: rows of the user's that a client could not send, or that a limit refuses.
    """
    columns, limits = pipeline.client_columns, pipeline.options.limits
    given = _given(pipeline)
    made = [
        (name, row, request)
        for name, row in _made(pipeline).items()
        for request in _requests(columns, _frame(columns, [row]))
        if not [*_beyond_limits(limits, columns, request)]
    ]
    names = [f"golden_rows[{number}]" for number in range(len(given))]
    rows = [_decoded(columns, request) for request in given]
    rows.append(_frame(columns, [row for _, row, _ in made]))
    return GoldenRows(
        (*names, *(name for name, _, _ in made)),
        pl.concat(rows),
        (*given, *(request for _, _, request in made)),
        len(given) or 1,
        _BOLD,
    )


def _requests(columns: Sequence[WireColumn], table: pl.DataFrame) -> list[Tensors]:
    """Each row as a client sends it."""
    return to_requests(Contract(tuple(columns), (), (), "", {}, max_batch_size=1), table)


def _given(pipeline: Pipeline) -> list[Tensors]:
    columns, rows = pipeline.client_columns, pipeline.options.golden_rows
    if rows is None:
        return []
    try:
        source = Source.of(rows)
        with source.errors("The golden rows cannot be read"):
            wanted = [column.name for column in columns if column.name in source.names]
            # Without any known column there is an error to come that names all of them.
            table = source.select(wanted or None).frame.head(MOST_GIVEN).collect()
        requests = _requests(columns, table)
    except (ClientError, WorkflowError) as error:
        text = error.message if isinstance(error, ClientError) else str(error)
        raise ExportError(f"Expected golden_rows that a client can send. {text}") from error
    if not requests:
        raise ExportError("Expected golden_rows to hold a row. Received: none.")
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
    return pl.DataFrame(
        [pl.Series(c.name, [row[c.name] for row in rows], _dtype(c)) for c in columns]
    )


def _decoded(columns: Sequence[WireColumn], request: Tensors) -> pl.DataFrame:
    """A request's row, as the server sees it."""
    return pl.DataFrame([to_series(decode(c, request), c.name).cast(_dtype(c)) for c in columns])


def _dtype(column: WireColumn) -> Any:
    if not column.is_time:
        return polars_dtype(column.dtype, is_list=column.is_list)
    return pl.List(pl.Datetime("us")) if column.is_list else pl.Datetime("us")


def _made(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """The rows by name; equal ones once."""
    columns, limits = pipeline.client_columns, pipeline.options.limits
    known = _vocabularies(pipeline.features.program)
    # A character of these two takes 5 bytes.
    text = "é☃" * (min(limits.get("max_string_bytes", LONG_TEXT), LONG_TEXT) // 5)
    edges = {c.name: _edges(c, known.get(c.name, ()), text) for c in columns}
    rows: dict[str, dict[str, Any]] = {}

    def add(name: str, scalar: _Pick, elements: _Pick) -> None:
        row = {c.name: (elements if c.is_list else scalar)(c, edges[c.name]) for c in columns}
        if row not in rows.values():
            rows[name] = row

    if pipeline.options.golden_rows is None:
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
    add("smallest values", lambda _, e: e.least, lambda _, e: [e.least])
    add("largest values", lambda _, e: e.most, lambda _, e: [e.most, e.least])
    return rows


def _usual(_: WireColumn, edges: _Edges) -> Any:
    return edges.firsts[0]


def _last(place: int, _: WireColumn, edges: _Edges) -> Any:
    return edges.lasts[min(place, len(edges.lasts) - 1)]


def _lasts(place: int, column: WireColumn, edges: _Edges) -> list[Any]:
    return [_last(place, column, edges)]


def _edges(column: WireColumn, vocabularies: Sequence[Column], text: str) -> _Edges:
    zero, one, least, most = _limits(column, text)
    ends = [(_key(keys, 0), _key(keys, -1)) for keys in vocabularies[:MOST_VOCABULARIES]]
    if not ends:
        # What nobody looks up has no unseen values, and may be an id.
        negative, larger = _NUMBERS.get(DTYPES[column.dtype].kind, (one, one))
        if column.is_time:
            negative, larger = one, one
        return _Edges((one,), (one,), zero, one, negative, larger, least, most)
    unseen = text[:1] + _UNSEEN if column.dtype == "string" else _unseen(vocabularies, least, most)
    firsts, lasts = zip(*ends, strict=True)
    return _Edges(firsts, lasts, zero, unseen, firsts[0], firsts[0], least, most)


def _limits(column: WireColumn, text: str) -> tuple[Any, Any, Any, Any]:
    """Values of a dtype: zero, another usual one, the least and the largest."""
    info = DTYPES[column.dtype]
    if column.is_time:
        one, least, most = (_EPOCH.replace(year=year) for year in (2020, 1700, 2250))
        return _EPOCH, one, least, most
    if info.kind == "string":
        return "", "", "", text
    if info.kind == "bool":
        return False, True, False, True
    if info.kind == "float":
        limits = np.finfo(info.numpy)
        return 0.0, 1.0, float(limits.min), float(limits.max)
    whole = np.iinfo(info.numpy)
    code = null_code(column.dtype) if column.nullable else None
    return 0, 1, int(whole.min) + (whole.min == code), int(whole.max) - (whole.max == code)


def _unseen(vocabularies: Sequence[Column], least: int, most: int) -> int:
    """A whole number beside those of all vocabularies."""
    lowest = min((int(keys.array.min()) for keys in vocabularies), default=0)
    highest = max((int(keys.array.max()) for keys in vocabularies), default=0)
    return highest + 1 if highest < most else max(lowest - 1, least)


def _key(keys: Column, place: int) -> Any:
    if isinstance(keys.values, Strings):
        ends = keys.values.offsets
        begin, end = (ends[0], ends[1]) if place == 0 else (ends[-2], ends[-1])
        return keys.values.data[begin:end].tobytes().decode()
    return keys.array[place].item() if keys.array.dtype != object else keys.array[place]


def _vocabularies(program: Program) -> dict[str, list[Column]]:
    """The keys among which each input column's own values are looked up."""
    found: dict[str, list[Column]] = {}
    for step in program.steps:
        if step.verb != "lookup" or not step.parameters["keys"].rows:
            continue
        source = program.steps[step.operands[0]]
        while source.verb in _HANDING_ON:
            source = program.steps[source.operands[0]]
        keys = step.parameters["keys"]
        if source.verb == "source" and _fits(program, source.parameters["name"], keys):
            found.setdefault(source.parameters["name"], []).append(keys)
    return found


def _fits(program: Program, name: str, keys: Column) -> bool:
    """Whether keys are values that the column can hold; a cast on the way may have made others."""
    info = program.inputs[name].info
    if info.kind == "string":
        return isinstance(keys.values, Strings) or keys.array.dtype == object
    if not info.is_integer or isinstance(keys.values, Strings) or keys.array.dtype.kind not in "iu":
        return False
    limits = np.iinfo(info.numpy)
    return int(keys.array.min()) >= limits.min and int(keys.array.max()) <= limits.max
