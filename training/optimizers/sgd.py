"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from training.optimizers.rows import SparseRows
from training.optimizers.scatter import add, put
from training.private import state_of


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class SGD(SparseRows, keras.optimizers.SGD):
    """`keras.optimizers.SGD` that updates only the batch's rows of a table.

    Without momentum the result equals Keras'. With momentum it is lazy: a row that is not in the
    batch neither moves nor loses momentum, where in Keras it does both.

    Args:
        *args: arguments of `keras.optimizers.SGD`.
        **kwargs: arguments of `keras.optimizers.SGD`, except `gradient_accumulation_steps`.

    Raises:
        TrainingError: `gradient_accumulation_steps` is set.

    Example:
        >>> SGD(0.1).get_config()["learning_rate"]
        0.10000000149011612
    """

    @property
    def linear(self) -> bool:
        """True without momentum."""
        return not self.momentum

    def update_step(self, gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        """Update as Keras does, by one operation for each variable instead of two."""
        if isinstance(gradient, tf.IndexedSlices) or self.momentum:
            super().update_step(gradient, variable, learning_rate)
            return
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle,
            alpha=tf.cast(learning_rate, variable.dtype),
            delta=tf.cast(gradient, variable.dtype),
        )

    def update_rows(
        self, variable: tf.Variable, rows: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor
    ) -> None:
        """See `SparseRows.update_rows`."""
        if not self.momentum:
            add(variable, rows, gradient, -rate)
            return
        momentums = state_of(self, "momentums", variable)
        velocity = self.momentum * tf.gather(momentums, rows) - rate * gradient
        put(momentums, rows, velocity)
        step = self.momentum * velocity - rate * gradient if self.nesterov else velocity
        add(variable, rows, step, tf.ones((), step.dtype))
