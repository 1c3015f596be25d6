"""Loss scaling for float16."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` that looks at a table's rows, not at the whole table.

    Keras' turns each sparse gradient into a dense one to see whether it is finite.

    Args:
        *args: those of `keras.optimizers.LossScaleOptimizer`, the inner optimizer first.
        **kwargs: those of `keras.optimizers.LossScaleOptimizer`.

    Example:
        >>> LossScaleOptimizer(keras.optimizers.SGD(0.1)).initial_scale
        32768.0
    """

    def check_finite(self, grads: Iterable[Any]) -> tf.Tensor:
        """Whether all gradients are."""
        values = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
        return tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(value)) for value in values if value is not None]
        )
