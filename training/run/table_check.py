"""Comparison of a model with the ids and the fit of its data, before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from loader import KerasSequenceLoader
from loader.tensorflow.sized_dataset import epochs_read_by
from training.column_facts.id_counts import id_count, too_small
from training.errors import TrainingError
from training.layers.records_fits import fits_of_model
from training.run.data_check import first_batch
from training.table_sizes import columns_of_inputs, tables_of
from workflow.schema.names import listed
from workflow.schema.tags import other_fits


def check_tables(model: keras.Model, data: Any) -> None:
    """Check that each table has a row for every id of its column, by the schema of the data.

    Only a loader knows a schema; it is the `_schema.json` that `transform_to_parquet` writes, or
    its argument. Tables whose ids the model computes from a column are not compared.

    Raises:
        TrainingError: a table has fewer rows than its column has ids.
    """
    if not isinstance(data, KerasSequenceLoader):
        return
    counts = {column.name: id_count(column) for column in data.input_schema.columns}
    columns = columns_of_inputs(model)
    for layer, name, rows in tables_of(model):
        column = columns.get(name, name)
        if rows < counts.get(column, 0):
            received = f"layer {layer!r} with {rows} rows."
            raise TrainingError(too_small(column, counts[column], received))


def check_fits(model: keras.Model, *data: Any) -> dict[str, str]:
    """Check that one fit has made all data, and that on which the model was trained, where it is known.

    Args:
        model: the model to train.
        data: for training and validation, as for `train`.

    Returns:
        Column -> digest of the fit, of all that is known, to be recorded in the trained model.

    Raises:
        TrainingError: another fit has made some columns; names them.
    """
    fits = fits_of_model(model)
    for dataset in data:
        if (epochs := epochs_read_by(dataset)) is None:
            continue
        features, _, _ = keras.utils.unpack_x_y_sample_weight(first_batch(dataset, "data"))
        names = features if isinstance(features, Mapping) else ()
        data_fits = {name: epochs.fits[name] for name in names if name in epochs.fits}
        if differ := other_fits(fits, data_fits):
            raise TrainingError(
                "Expected data made by the fit that made the model's earlier data, or the schema it was "
                f"built from. Received: data in which another fit has made {listed(differ)}: equal ids "
                "stand for other values. Build a new model for it, or transform the data with the "
                "earlier workflow."
            )
        fits |= data_fits
    return fits
