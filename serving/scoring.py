"""Predictions for data of any size, as parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from serving.client import EnsembleClient, current_contract
from serving.errors import ClientError, ColumnError
from serving.exchange import VersionsError
from workflow.data.sources import Source, as_path
from workflow.errors import WorkflowError
from workflow.expressions.polars.series import schema_of
from workflow.progress.stage import restart, showing
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import did_you_mean, listed, rename_advice
from workflow.transform.parquet_sink import ParquetSink
from workflow.transform.pieces_in_order import in_order

# Rows that are asked for at a time; the client divides them into requests.
ROWS_OF_A_PART = 65_536
# One piece is answered while the next one is encoded.
PARTS_AT_ONCE = 2


def predict_to_parquet(
    client: EnsembleClient,
    data: Any,
    folder: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    rows_per_file: int = 1_000_000,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[Path]:
    """Predict for every row of a data set, and write the answers as parquet.

    Rows are read, sent and written a part at a time and keep their order. The files appear together
    with `_schema.json`, or not at all. One version of the model answers all rows: if a new one comes
    between them, all are sent again.

    Args:
        client: connected to the model.
        data: parquet paths, a folder, a pattern, or a frame as `Workflow.fit` takes it. Columns that
            the model does not take are not read. CSV and TSV are read in the types of the model's
            inputs; in other columns, numbers with leading zeros stay text.
        folder: folder to write to; made if missing, and it must not contain parquet.
        keep: columns of the data to write before the model's outputs, such as a row's key.
        rows_per_file: rows of a file; the last one may have fewer.
        storage_options: how to connect to the object stores of paths with a scheme, as in `fit`.
        progress: show the progress on standard error, as `Workflow.fit` does.

    Returns:
        The files, in the order of the rows.

    Raises:
        ColumnError: the data lacks a column, or `keep` names an output of the model or a column of a type
            that no workflow takes, such as decimals.
        ClientError: the data cannot be read, the folder holds parquet, or the server refused.
        ServerUnavailableError: no connection, or versions of the model that change during the call.

    Example:
        >>> with EnsembleClient("127.0.0.1:8001", "movielens") as client:  # doctest: +SKIP
        ...     predict_to_parquet(client, "raw/*.parquet", "scores", keep=["userId", "movieId"])
        [PosixPath('scores/part-00000.parquet')]
    """
    contract = current_contract(client)
    keep = [keep] if isinstance(keep, str) else list(dict.fromkeys(keep))
    outputs = [column.name for column in contract.outputs]
    if both := [name for name in keep if name in outputs]:
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected --keep (keep= in Python) to name columns of the data. Received: {both[0]!r}, which the model "
            "answers with. Rename the column before.",
        )
    try:
        sink = ParquetSink(as_path(folder), rows_per_file, "snappy")
        sink.expect_outside(data)
        inputs = [column.name for column in contract.inputs]
        schema = contract.input_schema
        source = Source.of(data, storage_options=storage_options, known=schema)
        source = _selected(source, keep, inputs)
        shown = showing("predict", source.row_count(), progress=progress)
        with shown:
            try:
                return _written(client, source, keep, sink)
            except VersionsError:
                restart("predict again, by the new version")
                return _written(client, source, keep, sink)
    except WorkflowError as error:
        raise ClientError("INVALID_INPUT", str(error)) from error


def _selected(source: Source, keep: list[str], inputs: list[str]) -> Source:
    have = frozenset(source.names)
    if unknown := [name for name in keep if name not in have]:
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected --keep (keep= in Python) to name columns of the data. Received: "
            f"{listed(map(repr, unknown))}.{did_you_mean(unknown, have)} The data has: {listed(source.names)}.",
        )
    names = list(dict.fromkeys([*keep, *inputs]))
    if missing := [name for name in names if name not in have]:
        raise ColumnError(
            "INVALID_INPUT",
            f"Expected the columns {listed(names)}. Received: data without {listed(missing)}."
            + rename_advice(missing, have),
        )
    source = source.select(names)
    try:
        schema_of(source.frame.select(keep))
    except SchemaError as error:
        raise ColumnError("INVALID_INPUT", str(error)) from error
    return source.sound()


def _written(
    client: EnsembleClient, source: Source, keep: list[str], sink: ParquetSink
) -> list[Path]:
    frames = _of_one_version(_answers(client, source, keep))
    first = next(frames)
    return sink.write(chain([first], frames), schema_of(first.lazy()))


def _of_one_version(answers: Iterator[tuple[pl.DataFrame, str]]) -> Iterator[pl.DataFrame]:
    versions = set[str]()
    for frame, version in answers:
        versions |= {version} if frame.height else set()
        if len(versions) > 1:
            raise VersionsError.of(sorted(versions))
        yield frame


def _answers(
    client: EnsembleClient, source: Source, keep: list[str]
) -> Iterator[tuple[pl.DataFrame, str]]:
    def answer(piece: pl.LazyFrame) -> Iterator[tuple[pl.DataFrame, str]]:
        rows = piece.collect()
        for part in rows.iter_slices(ROWS_OF_A_PART) if rows.height else [rows]:
            answered, version = client._answer(part)  # noqa: SLF001 - of a part of the table
            arrays = [
                pl.col(name).arr.to_list()
                for name, dtype in answered.schema.items()
                if isinstance(dtype, pl.Array)
            ]
            answered = answered.with_columns(arrays)
            yield pl.DataFrame(part.select(keep).to_dict() | answered.to_dict()), version

    whole = in_order(
        lambda piece: list(answer(piece)), source.pieces(ROWS_OF_A_PART), PARTS_AT_ONCE
    )
    return source.checked("The rows cannot be read", chain.from_iterable(whole))
