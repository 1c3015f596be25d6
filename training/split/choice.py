"""A choice between two functions that the host makes without the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from training.private import as_one_operation


def either(
    condition: tf.Tensor, then: Callable[..., Any], otherwise: Callable[..., Any], *arguments: Any
) -> Any:
    """`tf.cond` as one operation, where TensorFlow would make a switch for each tensor.

    Switches on a GPU copy the condition to the GPU, behind all queued work, and operations that
    depend on them are sent only afterwards. One operation reads the condition on the host alone.

    Such an operation has its tensors on the GPU, but the functions that it calls expect int32 on
    the host, because TensorFlow uses int32 for shapes. So int32 goes in and out as float32, bit for
    bit.

    Args:
        condition: a bool, shape (), on the host.
        then: called with the arguments if the condition is true.
        otherwise: called with the arguments if it is false; returns the same structure and dtypes.
        *arguments: nested tensors, None and Python values.

    Returns:
        The function's result, with at least one tensor.
    """
    carried = _carried(arguments)
    results: list[Any] = []

    def call(function: Callable[..., Any]) -> list[Any]:
        results.append(function(*_restored(arguments, carried)))
        return _carried(results[-1])

    chosen = tf.cond(condition, lambda: call(then), lambda: call(otherwise))
    # TensorFlow puts an identity behind each result of the operation.
    as_one_operation(next(part for part in chosen if tf.is_tensor(part)).op.inputs[0].op)
    return _restored(results[0], chosen)


def _carried(structure: Any) -> list[Any]:
    parts = tf.nest.flatten(structure, expand_composites=True)
    return [tf.bitcast(part, tf.float32) if _is_int32(part) else part for part in parts]


def _restored(structure: Any, carried: Sequence[Any]) -> Any:
    """The carried values, in the structure and with the dtypes that they had."""
    parts = tf.nest.flatten(structure, expand_composites=True)
    restored = [
        tf.bitcast(new, tf.int32) if _is_int32(old) else new
        for new, old in zip(carried, parts, strict=True)
    ]
    return tf.nest.pack_sequence_as(structure, restored, expand_composites=True)


def _is_int32(part: Any) -> bool:
    return tf.is_tensor(part) and part.dtype == tf.int32
