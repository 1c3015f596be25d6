"""The vectors of a catalogue's items as a parquet file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from training.column_facts.input_arrays import input_arrays
from training.column_facts.recorded_fits import KEY as FITS
from training.column_facts.recorded_fits import digests_of_weights
from training.errors import TrainingError, unwritable
from training.item_vectors import ID, QUERY_WEIGHTS, VECTOR
from training.layers.records_fits import fits_of_model
from training.retrieval.towers import tower
from training.sharding.layout import layout_of
from workflow import Workflow, WorkflowError
from workflow.data.sources import Source, as_path, expect_kept
from workflow.expressions.program.program import build
from workflow.files.durable import replacing
from workflow.progress.stage import advance, showing
from workflow.schema.names import did_you_mean, listed
from workflow.schema.python_number import whole_number
from workflow.schema.tags import fits_of, other_fits


def write_item_vectors(
    model: keras.Model,
    workflow: Workflow,
    items: Any,
    path: str | os.PathLike[str],
    *,
    id: str,  # noqa: A002 - the name of the column that it writes
    batch_rows: int = 16_384,
    progress: bool = True,
) -> int:
    """Compute the vector of each item, and write them to a parquet file, a batch at a time.

    The file appears when it is complete. Its columns are `id`, the item as in the raw data, int64
    or string, and `vector`, a list of float32 of fixed size. Its metadata records the fit and the
    query's weights, so that an export refuses it with a tower of another training.

    Args:
        model: the trained model of `models.two_tower`.
        workflow: the workflow that it was trained with.
        items: raw rows, one for each item: paths of parquet or a frame, with the columns from which
            the workflow makes the candidate's. Its other columns may be missing.
        path: the file to write; an existing one is replaced.
        id: the column of `items` that identifies an item.
        batch_rows: how many rows to read and compute at once.
        progress: show the progress on standard error, as `Workflow.fit` does.

    Returns:
        The number of items.

    Raises:
        TrainingError: the model has no candidate's tower, the workflow is of another fit,
            columns are missing, an item is null or occurs twice, a column of the candidate is null
            for an item or needs more than one row, a vector is not finite, the id is of another type than whole numbers
            within int64 or strings, there is no such folder, the file is one of the items' own or
            cannot be written, or batch_rows is below 1.

    Example:
        >>> write_item_vectors(model, workflow, movies, "items.parquet", id="movieId")  # doctest: +SKIP
        9742
    """
    batch_rows = whole_number("batch_rows", batch_rows, 1, TrainingError)
    candidate = tower(model, "candidate")
    if unknown := [name for name in candidate.input if name not in workflow.output_schema]:
        raise TrainingError(
            "Expected the workflow with which the model was trained. Received: one that does not make "
            f"{listed(unknown)}, which the candidate's tower takes. It makes "
            f"{listed(workflow.output_schema)}."
        )
    all_fits = fits_of(workflow.output_schema.columns)
    fits = {name: all_fits[name] for name in candidate.input if name in all_fits}
    if differ := other_fits(fits_of_model(candidate), fits):
        raise TrainingError(
            "Expected the workflow whose fit has made the features that the model was trained on. "
            f"Received: one of another fit, in which ids or numbers of {listed(differ)} mean something "
            "else. Take the workflow that transformed the training data, or train again on what this "
            "one transforms."
        )
    try:
        notes = _notes(
            model, {name: fits.get(name, "") for name in candidate.input} if fits else {}
        )
        target, source = as_path(path), Source.of(items, known=workflow.input_schema)
        names = [*dict.fromkeys([id, *_needed(workflow, candidate)])]
        if missing := [name for name in names if name not in source.names]:
            raise TrainingError(
                f"Expected the columns {listed(names)} in items. Received: "
                f"{listed(source.names)}; missing: {listed(missing)}."
                + did_you_mean(missing, source.names)
            )
        if not target.parent.is_dir():
            raise TrainingError(
                f"Expected an existing folder to write {target.name} into. Received: {target.parent}."
            )
        expect_kept(target, source.paths)
        source = source.select(names).sound()
        with source.errors("The items cannot be read"):
            _expect_distinct(_as_ids(source.frame.select(id).collect()[id]))
        pieces = source.pieces(batch_rows)
        shown = showing("item vectors", source.row_count(), progress=progress)
        tables = _tables(candidate, workflow, pieces, id, batch_rows)
        with (
            _writing(target),
            replacing(target) as draft,
            source.errors("The items cannot be read"),
            shown,
        ):
            rows = _write(draft, target, tables, notes)
    except WorkflowError as error:
        raise TrainingError(f"Expected items to transform. Received: {error}") from error
    return rows


def _notes(model: keras.Model, fits: Mapping[str, str]) -> dict[str, str]:
    """The file's metadata: what made the vectors, by which an export finds that they are stale."""
    notes = {FITS: json.dumps(fits)} if fits else {}
    has_query = any(layer.name == "query_vector" for layer in model.layers)
    weights = tower(model, "query").weights if has_query else []
    if weights and not any(layout_of(weight) for weight in weights):
        notes[QUERY_WEIGHTS] = " ".join(sorted(digests_of_weights(weights)))
    return notes


def _needed(workflow: Workflow, candidate: keras.Model) -> list[str]:
    """The columns of the raw data from which a tower's inputs are made."""
    features, schema = workflow.served(candidate.input), workflow.output_schema
    columns = [(schema[name], features[name].expression) for name in candidate.input]
    return build(columns, workflow.input_schema).inputs.names


def _as_ids(items: pl.Series) -> pl.Series:
    """Items in the type that they have in the file."""
    if items.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return items.cast(pl.String)
    advice = (
        f"Make strings of them: items.with_columns(polars.col({items.name!r}).cast(polars.String))."
    )
    if not items.dtype.is_integer():
        raise TrainingError(
            f"Expected {items.name!r} as whole numbers or strings. Received: {items.dtype}. {advice}"
        )
    ids = items.cast(pl.Int64, strict=False)
    beyond = items.filter(ids.is_null() & items.is_not_null())
    if len(beyond):
        raise TrainingError(
            f"Expected {items.name!r} within int64. Received: {beyond[0]}. {advice}"
        )
    return ids


def _expect_distinct(ids: pl.Series) -> None:
    twice = ids.filter(ids.is_duplicated() | ids.is_null()).unique(maintain_order=True)
    if len(twice):
        raise TrainingError(
            f"Expected a row for each item, and no null in {ids.name!r}. Received: {len(ids):,} rows, "
            f"with {len(twice):,} values that are null or occur again, such as {twice[:3].to_list()}. "
            f"Take one row of each: items.unique({ids.name!r})."
        )


def _tables(
    candidate: keras.Model, workflow: Workflow, pieces: Any, id_: str, batch_rows: int
) -> Iterator[pa.Table]:
    for piece in pieces:
        for table in piece.collect().iter_slices(batch_rows):
            yield _batch(candidate, workflow, table, id_)


def _write(draft: Path, target: Path, tables: Iterable[pa.Table], notes: Mapping[str, str]) -> int:
    rows, writer = 0, None
    try:
        for table in tables:
            with _writing(target):
                schema = table.schema.with_metadata(dict(notes))
                writer = writer or pq.ParquetWriter(draft, schema)
                writer.write_table(table)
            rows += table.num_rows
            advance(table.num_rows)
    finally:
        if writer is not None:
            with _writing(target):
                writer.close()
    if writer is None:
        raise TrainingError("Expected at least one item. Received: none.")
    return rows


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Distinguish errors of writing from those of reading the items."""
    try:
        yield
    except OSError as error:
        raise unwritable(target, error) from error


def _batch(candidate: keras.Model, workflow: Workflow, table: pl.DataFrame, id_: str) -> pa.Table:
    full = table.with_columns(
        pl.lit(None).alias(name)
        for name in workflow.input_schema.names
        if name not in table.columns
    )
    features = workflow.transform(full, engine="cpu").select([*candidate.input]).collect()
    vectors = candidate.predict_on_batch(_tensors(candidate.input, features))
    ids = _as_ids(table[id_])
    if len(wrong := np.flatnonzero(~np.isfinite(vectors).all(axis=1))):
        raise TrainingError(
            f"Expected finite numbers in the vector of each item. Received: NaN or infinity for {id_!r} "
            f"{ids[int(wrong[0])]!r:.100}. Clip or fill its columns in the workflow, or leave it out."
        )
    column = pa.FixedSizeListArray.from_arrays(
        pa.array(np.asarray(vectors, np.float32).reshape(-1)), vectors.shape[1]
    )
    kind = pa.int64() if ids.dtype == pl.Int64 else pa.large_string()
    return pa.table({ID: ids.to_arrow().cast(kind), VECTOR: column})


def _tensors(inputs: Mapping[str, Any], table: pl.DataFrame) -> dict[str, Any]:
    """A batch of the model's inputs; a list is a pair of values and row lengths."""
    batch: dict[str, Any] = {}
    for name, tensors in inputs.items():
        arrays = [part[:, None] for part in input_arrays(table[name], keras.tree.flatten(tensors))]
        batch[name] = arrays[0] if len(arrays) == 1 else tuple(arrays)
    return batch
