"""The loss of a softmax over items."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class SoftmaxLoss(keras.losses.Loss):
    """The cross entropy of a model that answers with the log probability of each row's own item.

    -reward * log_probability, where the reward is the row's label: 1 for a click, 0 for an item that
    was only shown, or any other weight, such as the share of a film that was watched.

    Source: X. Yi et al., RecSys 2019, section 3.

    Args:
        name: the loss's name.
        **options: of `keras.losses.Loss`.

    Example:
        >>> float(SoftmaxLoss()(tf.constant([[1.0], [0.0]]), tf.constant([[-0.5], [-9.0]])))
        0.25
    """

    def __init__(self, name: str = "softmax_loss", **options: Any) -> None:
        super().__init__(name=name, **options)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of each row, (N)."""
        # Labels of arrays are often (N), which would make a table of each row with each other.
        rewards = keras.ops.reshape(keras.ops.cast(y_true, y_pred.dtype), keras.ops.shape(y_pred))
        return keras.ops.mean(-rewards * y_pred, axis=-1)
