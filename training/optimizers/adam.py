"""Adam."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from training.optimizers.rows import SparseRows
from training.optimizers.scatter import add, put
from training.private import state_of

_MOMENTS = ("_momentums", "_velocities")


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class Adam(SparseRows, keras.optimizers.Adam):
    """`keras.optimizers.Adam` that updates only the batch's rows of a table: lazy Adam.

    A row that is not in the batch keeps its moments, where Keras decays them and moves the row by
    them. Rows of a batch are updated as in Keras, from their current moments. So results differ
    slightly from Keras' where ids are rare, and the cost of a step depends on the batch, not on the
    table. All other variables are updated as in Keras.

    Source: D. Kingma, J. Ba, Adam: A Method for Stochastic Optimization, ICLR 2015.

    Args:
        *args: arguments of `keras.optimizers.Adam`.
        **kwargs: arguments of `keras.optimizers.Adam`, except `gradient_accumulation_steps`.

    Raises:
        TrainingError: `gradient_accumulation_steps` is set.

    Example:
        >>> Adam(0.01).beta_1
        0.9
    """

    def update_step(self, gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        """Update as Keras does, by one operation for each variable instead of a dozen."""
        # With replicas the state of this one has no handle.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if isinstance(gradient, tf.IndexedSlices) or self.amsgrad or replicas > 1:
            super().update_step(gradient, variable, learning_rate)
            return
        first, second = (state_of(self, name, variable) for name in _MOMENTS)
        step = tf.cast(self.iterations + 1, variable.dtype)
        beta_1, beta_2 = (tf.cast(beta, variable.dtype) for beta in (self.beta_1, self.beta_2))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
        )

    def update_rows(
        self, variable: tf.Variable, rows: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor
    ) -> None:
        """See `SparseRows.update_rows`."""
        momentums, velocities = (state_of(self, name, variable) for name in _MOMENTS)
        first = _decay(momentums, rows, gradient, self.beta_1)
        second = _decay(velocities, rows, tf.square(gradient), self.beta_2)
        if self.amsgrad:
            largest = state_of(self, "_velocity_hats", variable)
            second = tf.maximum(tf.gather(largest, rows), second)
            put(largest, rows, second)
        step = tf.cast(self.iterations + 1, variable.dtype)
        rate *= tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        add(variable, rows, first / (tf.sqrt(second) + self.epsilon), -rate)


def _decay(moments: tf.Variable, rows: tf.Tensor, values: tf.Tensor, beta: float) -> tf.Tensor:
    """Move rows of a moving average towards values; return their new values."""
    old = tf.gather(moments, rows)
    new = old + (values - old) * (1 - beta)
    put(moments, rows, new)
    return new
