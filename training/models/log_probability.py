"""The output of two towers that are trained with a softmax over items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import polars as pl

from training.column_facts.input_arrays import input_arrays
from training.errors import TrainingError
from training.models.columns import Columns
from training.retrieval.frequency import StreamingFrequency
from training.retrieval.sampling import SampledItems
from training.retrieval.softmax import InBatchSoftmax, LogProbability, SampledSoftmax
from workflow import WorkflowError
from workflow.data.sources import as_lazy_frame
from workflow.schema.names import did_you_mean, listed
from workflow.wire.request_rules import NNZS, VALUES


def log_probability(
    softmax: InBatchSoftmax | SampledSoftmax,
    candidate: Columns,
    inputs: Mapping[str, Any],
    vectors: Sequence[Any],
    items: Callable[[Any], Any],
    output_name: str,
) -> Any:
    """The log probability of each row's own item, (N, 1).

    Args:
        softmax: the settings.
        candidate: the candidate's columns.
        inputs: the model's inputs.
        vectors: of the query and of the candidate.
        items: the candidate's tower.
        output_name: the name of the last layer.

    Raises:
        TrainingError: the settings are of another kind, the item is no column of single ids of the
            candidate, or the catalogue lacks columns or rows.
    """
    if not isinstance(softmax, InBatchSoftmax | SampledSoftmax):
        raise TrainingError(
            "Expected softmax as retrieval.InBatchSoftmax(item), retrieval.SampledSoftmax(item, items) or "
            f"None. Received: {softmax!r:.100}."
        )
    if softmax.item not in candidate.scalars:
        raise TrainingError(
            "Expected item as one of the candidate's columns of single ids, "
            f"{listed(candidate.scalars) or 'none'}. Received: {softmax.item!r}."
        )
    query, own_vectors = vectors
    ids, rows = inputs[softmax.item], candidate.scalars[softmax.item][0]
    layer = LogProbability(softmax.temperature, name=output_name)
    if isinstance(softmax, InBatchSoftmax):
        batch = {"vectors": own_vectors, "ids": ids}
        if softmax.rate is not None:
            frequency = StreamingFrequency(rows, softmax.rate, name="item_frequency")
            batch["log_share"] = frequency(ids)
        return layer(query, batch, batch)
    drawn = _sampler(softmax, candidate, inputs, rows)(ids)
    return layer(
        query,
        {"vectors": own_vectors, "ids": ids, "log_share": drawn["own"]},
        {"vectors": items(drawn["features"]), "ids": drawn["ids"], "log_share": drawn["drawn"]},
    )


def _sampler(
    softmax: SampledSoftmax, candidate: Columns, inputs: Mapping[str, Any], rows: int
) -> SampledItems:
    names = [*candidate.sizes, *candidate.continuous]
    extra = [] if softmax.popularity is None else [softmax.popularity]
    table = _read(softmax.items, [*names, *extra])
    columns: dict[str, Any] = {}
    for name in names:
        _expect_ids(table[name], candidate)
        tensors = keras.tree.flatten(inputs[name])
        parts = [name + VALUES, name + NNZS] if name in candidate.lists else [name]
        columns |= dict(zip(parts, input_arrays(table[name], tensors), strict=True))
    dtypes = {part: array.dtype.name for part, array in columns.items()}
    if (count := table[softmax.item].n_unique()) < table.height:
        raise TrainingError(
            f"Expected a row for each item in items. Received: {table.height:,} rows with {count:,} "
            f"items in {softmax.item!r}. Take one row of each."
        )
    shapes = {"": table.height} | {name: len(array) for name, array in columns.items()}
    layer = SampledItems(
        dtypes, softmax.item, softmax.count, shapes, rows, softmax.seed, name="sampled_items"
    )
    layer.fill(columns, _shares(softmax, table))
    return layer


def _read(items: Any, names: list[str]) -> pl.DataFrame:
    try:
        frame = as_lazy_frame(items)
        have = frame.collect_schema().names()
        missing = [name for name in names if name not in have]
        if missing:
            raise TrainingError(
                f"Expected the columns {listed(names)} in items. Received: {listed(have)}; "
                f"missing: {listed(missing)}." + did_you_mean(missing, have)
            )
        table = frame.select([*dict.fromkeys(names)]).collect()
    except WorkflowError as error:
        raise TrainingError(f"Expected items as a table. Received: {error}") from error
    if not table.height:
        raise TrainingError("Expected items with at least one row. Received: none.")
    return table


def _expect_ids(column: pl.Series, candidate: Columns) -> None:
    """Check that a table of the model has a row for each id of a column, if it is one of ids."""
    rows = candidate.cardinalities.get(column.name)
    ids = column.explode(empty_as_null=False) if column.name in candidate.lists else column
    if rows is None or not ids.dtype.is_integer() or ids.is_between(0, rows - 1).all():
        return
    raise TrainingError(
        f"Expected {column.name!r} from 0 to {rows - 1} in items. Received: {ids.min()!r} to "
        f"{ids.max()!r}. Transform the items with the workflow of the training."
    )


def _shares(softmax: SampledSoftmax, table: pl.DataFrame) -> Any:
    if softmax.popularity is None:
        return np.full(table.height, 1 / table.height)
    column = table[softmax.popularity]
    expected = (
        f"Expected the popularity {column.name!r} as a number above 0 for each item. Received:"
    )
    if not column.dtype.is_numeric() and column.dtype != pl.Null:
        raise TrainingError(f"{expected} {column.dtype}. Cast it, or take another column.")
    counts = column.cast(pl.Float64).to_numpy()
    if not (np.isfinite(counts) & (counts > 0)).all():
        raise TrainingError(
            f"{expected} {counts.min()} among others. Leave out items that never occur, or add 1."
        )
    return counts / counts.sum()
