"""Adagrad."""

from __future__ import annotations

import keras
import tensorflow as tf

from training.optimizers.rows import SparseRows
from training.optimizers.scatter import add
from training.private import state_of


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class Adagrad(SparseRows, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad` that updates only the batch's rows of a table.

    The result equals that of Keras' Adagrad on the dense gradient: a row without gradient neither
    moves nor accumulates state. On TensorFlow's sparse gradients Keras' own Adagrad squares each
    occurrence of a repeated id separately; here, as in the definition, their sum is squared.

    Source: J. Duchi, E. Hazan, Y. Singer, Adaptive Subgradient Methods, JMLR 12 (2011).

    Args:
        *args: arguments of `keras.optimizers.Adagrad`.
        **kwargs: arguments of `keras.optimizers.Adagrad`, except `gradient_accumulation_steps`.

    Raises:
        TrainingError: `gradient_accumulation_steps` is set.

    Example:
        >>> Adagrad(0.1).initial_accumulator_value
        0.1
    """

    def update_rows(
        self, variable: tf.Variable, rows: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor
    ) -> None:
        """See `SparseRows.update_rows`."""
        accumulators = state_of(self, "_accumulators", variable)
        add(accumulators, rows, tf.square(gradient), tf.ones((), accumulators.dtype))
        accumulated = tf.gather(accumulators, rows)
        add(variable, rows, gradient / tf.sqrt(accumulated + self.epsilon), -rate)
