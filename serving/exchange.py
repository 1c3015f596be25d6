"""From a table to requests, and from their answers back to the kind of table that it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl

from serving.contract import Contract
from serving.errors import ClientError, DtypeError
from serving.inputs.plain import plain_tensors
from serving.inputs.table import expect_table, is_pandas, to_columns
from serving.outputs import to_arrays, to_pandas, to_polars
from workflow.dtypes import SchemaError
from workflow.expressions.column import Array, Column
from workflow.wire import WireColumn, encode


def to_requests(contract: Contract, data: Any) -> list[dict[str, Array]]:
    """The tensors of as many requests as the table needs; none where it has no rows.

    Args:
        contract: what the model takes, and how many rows at once.
        data: a table of any kind.

    Raises:
        ClientError: the data does not fit.
    """
    plain, columns = _read(contract, data)
    counts = {len(tensor) for tensor in plain.values()} | {c.rows for c in columns.values()}
    rows = max(counts, default=0)
    step = contract.max_rows or rows
    if rows <= step:
        return [_encode(contract, plain, columns)] if rows else []
    return [
        _encode(
            contract,
            {name: tensor[start : start + step] for name, tensor in plain.items()},
            {name: _rows(column, start, start + step) for name, column in columns.items()},
        )
        for start in range(0, rows, step)
    ]


def to_table(contract: Contract, data: Any, answers: Sequence[dict[str, Array]]) -> Any:
    """One table of all answers, of the kind that `data` is.

    Args:
        contract: what the model gives.
        data: what was asked for.
        answers: the output tensors of each request.

    Raises:
        ClientError: a column of a frame cannot hold what the server answered.
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
            "INTERNAL", f"{error} Ask with a dict, which is answered with arrays as they come."
        ) from error
    return to_arrays(contract.outputs, tensors)


def _read(contract: Contract, data: Any) -> tuple[dict[str, Array], dict[str, Column]]:
    """The plain columns as tensors, and the others; all have the same number of rows."""
    expect_table(data)
    few = contract.few_values.of(data)
    plain = plain_tensors(contract.plain_groups, few or data)
    if len(plain) == len(contract.inputs):
        return plain, {}
    rows = {len(tensor) for tensor in plain.values()}
    others = [column for column in contract.inputs if column.name not in plain]
    # An error is to be told of the table as it is; one of several lengths names all columns.
    with suppress(ClientError):
        columns = to_columns(others, data, few)
        if len(rows | {column.rows for column in columns.values()}) <= 1:
            return plain, columns
    return {}, to_columns(contract.inputs, data)


def _encode(
    contract: Contract, plain: Mapping[str, Array], columns: Mapping[str, Column]
) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    try:
        for column in contract.inputs:
            if column.name in plain:
                tensors[column.name] = plain[column.name]
            else:
                tensors.update(encode(column, columns[column.name]))
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
    """The tensors of all answers, one below the other."""
    if len(answers) <= 1:
        return dict(*answers)
    ragged = {column.values_name for column in columns if column.layout == "padded"}
    names = [name for column in columns for name in column.tensors]
    return {
        name: np.concatenate(
            _of_one_width([answer[name] for answer in answers])
            if name in ragged
            else [answer[name] for answer in answers]
        )
        for name in names
    }


def _of_one_width(parts: Sequence[Array]) -> list[Array]:
    """Padded lists filled up to the widest; what stands behind a row's end does not matter."""
    width = max(part.shape[1] for part in parts)
    filler = b"" if parts[0].dtype == object else 0
    return [
        np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=filler) for part in parts
    ]
