"""Conversion of a table to requests, and of their answers to a table of the same kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import polars as pl

from serving.connection.tensors import Inference
from serving.contract import Contract
from serving.errors import (
    ClientError,
    ColumnError,
    DtypeError,
    InvalidRequestError,
    ServerUnavailableError,
)
from serving.inputs.encoder import Encoded
from serving.inputs.table import is_pandas
from serving.outputs import to_arrays, to_pandas, to_polars
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import SchemaError
from workflow.wire.format import WireColumn, encode_request
from workflow.wire.request_rules import stacked, widens

# Errors of a table that does not fit a contract, or of a request that does not fit the server's model.
UNFIT = (ColumnError, DtypeError, InvalidRequestError)
# Sendings of a table, at most: by the contract of another version, or to servers of different versions.
MOST_ATTEMPTS = 4
# Padding that a request may have in any case; 8 MB of int64.
SPARE_PADDING = 1 << 20


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
    encoded = contract.encoder.encode(data)
    rows = encoded.rows
    if rows == 1 or (not contract.padded and 0 < rows <= (contract.max_rows or rows)):
        return [_request(contract, encoded)]
    parts = encoded.parts(_parts(contract, encoded.lists, rows))
    return [_request(contract, part) for part in parts]


def is_of_another(version: str, contract: Contract, asked: str) -> bool:
    """Whether another version has answered than the one whose contract a client has read.

    Args:
        version: the version that has answered; "" if none has.
        contract: the contract.
        asked: the version that the client asks for; "" for the latest.
    """
    return not asked and bool(version and contract.version) and version != contract.version


def of_other_versions(answers: Sequence[Inference]) -> list[int]:
    """The places of the answers of other versions than the last one, which a server replaces at once."""
    return [place for place, answer in enumerate(answers) if answer.version != answers[-1].version]


class VersionsError(ServerUnavailableError):
    """Different versions of the model have answered the rows of one table."""

    @classmethod
    def of(cls, versions: Iterable[str]) -> Self:
        """The error for some versions; a pickle makes it of its code and its message."""
        return cls(
            "UNAVAILABLE",
            "Expected one version for all rows of a table. Received: answers of the versions "
            f"{', '.join(dict.fromkeys(versions))}. Send the table again once the new version is "
            "everywhere, or fewer rows at once.",
        )


def of_another_contract(version: str, contract: Contract) -> VersionsError:
    """The error for answers of a version whose contract no server tells; the caller raises it."""
    return VersionsError(
        "UNAVAILABLE",
        f"Expected the contract of version {version}, which has answered. Received: that of version "
        f"{contract.version}, as from servers of different versions behind one address. Send the table "
        "again once the new version is everywhere.",
    )


def of_one_version(answers: Sequence[Inference]) -> list[dict[str, Array]]:
    """The output tensors of answers.

    Raises:
        VersionsError: different versions of the model have answered.
    """
    if of_other_versions(answers):
        raise VersionsError.of(answer.version for answer in answers)
    return [answer.tensors for answer in answers]


def to_table(contract: Contract, data: Any, answers: Sequence[dict[str, Array]]) -> Any:
    """Combine all answers in one table, of the same kind as `data`.

    Args:
        contract: the model's outputs.
        data: the table that was sent.
        answers: the output tensors of each request.

    Raises:
        ClientError: a column of a frame cannot hold the server's answer.
    """
    try:
        tensors = _joined(contract.outputs, [contract.opened(answer) for answer in answers])
        for column in contract.outputs if answers else ():
            _ = [tensors[name] for name in column.tensors]
    except KeyError as error:
        received = ", ".join(answers[0])
        raise InvalidRequestError(
            "INVALID_ARGUMENT",
            f"Expected the output {error} of the model. Received: {received}. Connect again. If the server "
            "keeps answers (response_cache), another client has asked for these outputs alone: have all clients "
            "ask for all.",
        ) from error
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


def _parts(
    contract: Contract, columns: Mapping[str, Column], rows: int
) -> Iterator[tuple[int, int]]:
    """The rows of each request: as many as the model takes, or fewer if lists are too uneven."""
    step = contract.max_rows or max(rows, 1)
    lengths = [counts for name in contract.padded if (counts := columns[name].lengths) is not None]
    for start in range(0, rows, step):
        end = min(start + step, rows)
        yield from _even_parts([counts[start:end] for counts in lengths], start, end)


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
    return rows > 1 and widens(rows, sum(longest), elements, SPARE_PADDING)


def _request(contract: Contract, encoded: Encoded) -> dict[str, Array]:
    tensors = dict(encoded.scalars)
    try:
        for column in contract.inputs:
            if column.is_list:
                tensors |= encode_request(column, encoded.lists[column.name])
    except SchemaError as error:
        raise DtypeError("INVALID_INPUT", str(error)) from error
    contract.expect_within_limits(tensors)
    return tensors


def _joined(columns: Sequence[WireColumn], answers: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """The tensors of all answers, concatenated."""
    if len(answers) <= 1:
        return dict(*answers)
    names = [name for column in columns for name in column.tensors]
    return {name: stacked([answer[name] for answer in answers]) for name in names}
