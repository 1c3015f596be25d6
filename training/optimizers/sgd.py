"""Stochastic gradient descent."""

from __future__ import annotations

import keras
import tensorflow as tf

from training.optimizers.rows import SparseRows, add, put


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class SGD(SparseRows, keras.optimizers.SGD):
    """`keras.optimizers.SGD` whose update of a table touches the batch's rows only.

    Without momentum the result is Keras'. With momentum it is lazy: a row that is not in the batch
    neither moves on nor loses momentum, where Keras' does both.

    Args:
        *args: those of `keras.optimizers.SGD`.
        **kwargs: those of `keras.optimizers.SGD`, but for `gradient_accumulation_steps`.

    Raises:
        TrainingError: gradients are to be accumulated.

    Example:
        >>> SGD(0.1).get_config()["learning_rate"]
        0.10000000149011612
    """

    @property
    def linear(self) -> bool:
        """True without momentum."""
        return not self.momentum

    def update_rows(
        self, variable: tf.Variable, rows: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor
    ) -> None:
        """See `SparseRows.update_rows`."""
        step = -rate * gradient
        if self.momentum:
            momentums = self.momentums[self._get_variable_index(variable)].value
            velocity = self.momentum * tf.gather(momentums, rows) + step
            put(momentums, rows, velocity)
            step = self.momentum * velocity + step if self.nesterov else velocity
        add(variable, rows, step)
