"""Comparison of a model with the ids and the fit of its data, before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from loader import KerasSequenceLoader
from training.column_facts.id_counts import id_count, too_small
from training.errors import TrainingError
from training.layers.records_fits import fits_of_model, record_fits
from training.private import node_of
from training.table_sizes import tables_of
from workflow.errors import listed
from workflow.schema.tags import fits_of, other_fits


def check_tables(model: keras.Model, data: Any) -> None:
    """Check that each table has a row for every id of its column, by the schema of the data.

    Only a loader knows a schema; it is the `_schema.json` that `transform_to_parquet` writes, or
    its argument. Tables whose ids the model computes from a column are not compared. The fits that
    the data comes from are recorded in the model, for its next training and its export.

    Args:
        model: the model to train.
        data: as for `train`.

    Raises:
        TrainingError: a table has fewer rows than its column has ids, or the model was trained on
            another fit.
    """
    if not isinstance(data, KerasSequenceLoader):
        return
    counts = {column.name: id_count(column) for column in data.input_schema.columns}
    columns = _columns_of_inputs(model)
    for layer, own, rows in tables_of(model):
        column = columns.get(own, own)
        if rows < counts.get(column, 0):
            received = f"layer {layer!r} with {rows} rows."
            raise TrainingError(too_small(column, counts[column], received))
    _check_fits(model, data)


def _check_fits(model: keras.Model, data: KerasSequenceLoader) -> None:
    inputs = getattr(model, "input", None)
    names = inputs if isinstance(inputs, Mapping) else ()
    fits = fits_of([column for column in data.input_schema.columns if column.name in names])
    recorded = fits_of_model(model)
    if differ := other_fits(recorded, fits):
        raise TrainingError(
            "Expected data that the same fit has made as the data that the model was trained on. "
            f"Received: data in which another fit has made {listed(differ)}: equal ids stand for other "
            "values. Train a new model on it, or transform the data with the earlier workflow."
        )
    record_fits(model, recorded | fits)


def _columns_of_inputs(model: keras.Model) -> dict[str, str]:
    """The column of each named input; that of both inputs of a list."""
    inputs = getattr(model, "input", None)
    if not isinstance(inputs, Mapping):
        return {}
    return {
        node_of(tensor).operation.name: column
        for column, given in inputs.items()
        for tensor in keras.tree.flatten(given)
    }
