"""Gradients of variables that both parts of a split model use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.sharding.layout import layout_of
from training.tables.side_by_side import LookedRows


def sum_of_both(variable: keras.Variable, first: Any, second: Any) -> Any:
    """The gradient of a variable that both parts of a model use.

    Args:
        variable: for which the gradients are.
        first: dense, rows, or rows of several lookups; None if there is none.
        second: dense or rows; None if there is none.
    """
    if first is None or second is None:
        return second if first is None else first
    if layout_of(variable) is not None:
        raise _both([variable.path])
    total: Any = tf.zeros(variable.shape, variable.dtype)
    for gradient in (first, second):
        for part in gradient if isinstance(gradient, list) else [gradient]:
            total = _added(total, part)
    return total


def _added(total: tf.Tensor, gradient: Any) -> tf.Tensor:
    """A dense gradient plus one that is dense or has the rows of a table."""
    if not isinstance(gradient, (tf.IndexedSlices, LookedRows)):
        return total + gradient
    rows = gradient.rows if isinstance(gradient, LookedRows) else gradient.indices
    values = tf.cast(gradient.values, total.dtype)
    return tf.tensor_scatter_nd_add(total, rows[:, tf.newaxis], values)


def expect_lookups_alone(
    tables: Sequence[keras.Variable], gradients: Mapping[int, Any], of_lookups: Mapping[int, Any]
) -> None:
    """Raise TrainingError if a table whose lookups are recorded apart has another gradient too."""
    both = [t.path for t in tables if id(t) in of_lookups and gradients[id(t)] is not None]
    if both:
        raise _both(both)


def _both(tables: Sequence[str]) -> TrainingError:
    return TrainingError(
        "Expected tables that are read by lookups alone, to train with several workers on GPUs or "
        f"with divided tables. Received: a model that also reads {', '.join(tables)} itself. Look up "
        "what it needs by ids."
    )
