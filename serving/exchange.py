"""Conversion of a table to requests, and of their answers to a table of the same kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from serving.contract import Contract
from serving.errors import ClientError, DtypeError
from serving.inputs.plain import plain_tensors
from serving.inputs.table import expect_table, is_pandas, to_columns
from serving.outputs import to_arrays, to_pandas, to_polars
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import SchemaError
from workflow.wire.format import WireColumn, encode_request
from workflow.wire.request_rules import stacked, widens

# Padding that a request may have in any case; 8 MB of int64.
_SPARE = 1 << 20


def to_requests(contract: Contract, data: Any) -> list[dict[str, Array]]:
    """The tensors of as many requests as the table needs; none without rows.

    A request has at most as many rows as the model takes, and no list so much longer than the
    others that padding would take most of the memory.

    Args:
        contract: the model's inputs, and its limit of rows.
        data: a table of any kind.

    Raises:
        ClientError: the data does not fit.
    """
    plain, columns = _read(contract, data)
    counts = {len(tensor) for tensor in plain.values()} | {c.rows for c in columns.values()}
    parts = list(_parts(contract, columns, max(counts, default=0)))
    if len(parts) == 1:
        return [_encode(contract, plain, columns)]
    return [
        _encode(
            contract,
            {name: tensor[start:end] for name, tensor in plain.items()},
            {name: _rows(column, start, end) for name, column in columns.items()},
        )
        for start, end in parts
    ]


def to_table(contract: Contract, data: Any, answers: Sequence[dict[str, Array]]) -> Any:
    """Combine all answers in one table, of the same kind as `data`.

    Args:
        contract: the model's outputs.
        data: the table that was sent.
        answers: the output tensors of each request.

    Raises:
        ClientError: a column of a frame cannot hold the server's answer.
    """
    tensors = _joined(contract.outputs, [contract.opened(answer) for answer in answers])
    if not answers:
        tensors = contract.no_rows()
    try:
        if isinstance(data, pl.DataFrame):
            return to_polars(contract.outputs, tensors)
        if is_pandas(data):
            return to_pandas(contract.outputs, tensors, data.index)
    except SchemaError as error:
        raise ClientError(
            "INTERNAL", f"{error} Send a dict, which is answered with arrays, unconverted."
        ) from error
    return to_arrays(contract.outputs, tensors)


def _read(contract: Contract, data: Any) -> tuple[dict[str, Array], dict[str, Column]]:
    """The plain columns as tensors, and the others; all with the same number of rows."""
    expect_table(data)
    few = contract.few_values.of(data)
    plain = plain_tensors(contract.plain_groups, few or data)
    if len(plain) == len(contract.inputs):
        return plain, {}
    rows = {len(tensor) for tensor in plain.values()}
    others = [column for column in contract.inputs if column.name not in plain]
    # An error should be about the whole table; one about different lengths names all columns.
    with suppress(ClientError):
        columns = to_columns(others, data, few)
        if len(rows | {column.rows for column in columns.values()}) <= 1:
            return plain, columns
    return {}, to_columns(contract.inputs, data)


def _parts(
    contract: Contract, columns: Mapping[str, Column], rows: int
) -> Iterator[tuple[int, int]]:
    """The rows of each request: as many as the model takes, or fewer if lists are too uneven."""
    step = contract.max_rows or max(rows, 1)
    padded = [columns[c.name] for c in contract.inputs if c.layout == "padded" and not c.width]
    lengths = [column.lengths for column in padded if column.lengths is not None]
    for start in range(0, rows, step):
        end = min(start + step, rows)
        yield from _even_parts([own[start:end] for own in lengths], start, end)


def _even_parts(lengths: Sequence[Array], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split rows if padded lists would be mostly padding: one long list widens all rows."""
    totals = [int(own.sum()) for own in lengths]
    if _widens(end - start, [int(own.max()) for own in lengths], sum(totals)):
        longest, elements = [0] * len(lengths), 0
        for row, own in enumerate(zip(*(own.tolist() for own in lengths), strict=True), start):
            wider, more = [*map(max, longest, own)], elements + sum(own)
            if _widens(row + 1 - start, wider, more):
                yield start, row
                start, wider, more = row, [*own], sum(own)
            longest, elements = wider, more
    yield start, end


def _widens(rows: int, longest: Sequence[int], elements: int) -> bool:
    return rows > 1 and widens(rows, sum(longest), elements, _SPARE)


def _encode(
    contract: Contract, plain: Mapping[str, Array], columns: Mapping[str, Column]
) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    try:
        for column in contract.inputs:
            if column.name in plain:
                tensors[column.name] = plain[column.name]
            else:
                tensors.update(encode_request(column, columns[column.name]))
    except (SchemaError, UnicodeEncodeError) as error:
        raise DtypeError("INVALID_INPUT", str(error)) from error
    return tensors


def _rows(column: Column, start: int, end: int) -> Column:
    """Some rows of a column."""
    if column.lengths is None:
        inside, lengths = slice(start, end), None
    else:
        first, last = column.offsets()[[start, min(end, column.rows)]]
        inside, lengths = slice(first, last), column.lengths[start:end]
    valid = None if column.valid is None else column.valid[inside]
    return Column(column.array[inside], valid, lengths)


def _joined(columns: Sequence[WireColumn], answers: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """The tensors of all answers, concatenated."""
    if len(answers) <= 1:
        return dict(*answers)
    names = [name for column in columns for name in column.tensors]
    return {name: stacked([answer[name] for answer in answers]) for name in names}
