"""Loss scaling for float16."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from workflow.schema.own_names import OwnNames


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer, metaclass=OwnNames):
    """`keras.optimizers.LossScaleOptimizer` that checks a table's rows, not the whole table.

    Keras converts each sparse gradient to a dense one to check whether it is finite.

    Args:
        *args: arguments of `keras.optimizers.LossScaleOptimizer`, the inner optimizer first.
        **kwargs: arguments of `keras.optimizers.LossScaleOptimizer`.

    Example:
        >>> LossScaleOptimizer(keras.optimizers.SGD(0.1)).initial_scale
        32768.0
    """

    def check_finite(self, grads: Iterable[Any]) -> tf.Tensor:
        """Whether all gradients are finite."""
        values = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
        return tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(value)) for value in values if value is not None]
        )
