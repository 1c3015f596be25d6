"""Checks of ids and row lengths in every step; failures become errors for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from training.column_facts.input_arrays import too_narrow
from training.errors import TrainingError
from training.layers import EmbeddingBag, EmbeddingCollection
from training.private import layers_of
from training.tables.ids import seen


@contextmanager
def checked_ids(model: keras.Model) -> Iterator[None]:
    """Check while the block runs; the model is restored when it ends.

    Raises:
        TrainingError: ids out of a column's range, or lengths with a wrong sum.
    """
    lookups = [
        layer
        for layer in layers_of(model)
        if isinstance(layer, (EmbeddingBag, EmbeddingCollection))
    ]
    before = [layer.validate_ids for layer in lookups]
    for layer in lookups:
        layer.validate_ids = True
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        match = re.search(r"assertion failed: \[(Expected .*?)\] \[(.*?)\] \[(.*?)\]", str(error))
        if match is None:
            raise
        raise TrainingError(f"{match[1]} {match[2]} .. {match[3]}") from error
    finally:
        for layer, value in zip(lookups, before, strict=True):
            layer.validate_ids = value
        # They were traced with the checks.
        model.train_function = model.test_function = None


def uncast(model: keras.Model, data: Any) -> Any:
    """The data, with a check of ids that Keras would cast to a narrower dtype of the model's input.

    The cast turns an int64 id beyond int32 into some other id, which no layer can detect. Data that
    is not a `tf.data.Dataset` is returned unchanged: `check_data` has looked at arrays.
    """
    inputs = getattr(model, "input", None)
    if not (isinstance(data, tf.data.Dataset) and isinstance(inputs, Mapping)):
        return data

    @tf.autograph.experimental.do_not_convert
    def check(x: Any, *rest: Any) -> tuple[Any, ...]:
        return {name: _fitting(name, inputs.get(name), x[name]) for name in x}, *rest

    return data.map(check)


def _fitting(column: str, expected: Any, value: Any) -> Any:
    if isinstance(value, (tuple, list)) and isinstance(expected, (tuple, list)):
        return tuple(_fitting(column, *pair) for pair in zip(expected, value, strict=True))
    if expected is None or not isinstance(value, tf.Tensor) or not value.dtype.is_integer:
        return value
    dtype = tf.as_dtype(expected.dtype)
    if not dtype.is_integer or dtype.max >= value.dtype.max:
        return value
    fits = tf.reduce_all((value <= dtype.max) & (value >= dtype.min))
    message = f"{too_narrow(dtype.name, f'column {column}')} Received:"
    return seen(value, fits, [message, tf.reduce_min(value), tf.reduce_max(value)])
