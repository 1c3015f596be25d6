"""Validation after each epoch, as a Keras callback."""

from __future__ import annotations

from typing import Any

import tensorflow as tf  # before Keras, as in training/__init__.py

# isort: split
import keras

from loader.errors import LoaderError
from workflow.schema.own_names import OwnNames


class KerasSequenceValidater(keras.callbacks.Callback, metaclass=OwnNames):
    """A callback that evaluates the model on a loader after each epoch, as `validation_data=` would.

    The values are those of `model.evaluate`. They are added to the epoch's logs as `val_loss` and
    so on, for `History` and for callbacks after this one.

    Args:
        dataloader: the validation data, usually with `shuffle=False`.

    Raises:
        LoaderError: an object that is not a dataset. In `fit`: data without rows.

    Example:
        >>> model.fit(train, callbacks=[KerasSequenceValidater(valid)])  # doctest: +SKIP
    """

    def __init__(self, dataloader: Any) -> None:
        super().__init__()
        if not isinstance(dataloader, tf.data.Dataset | tf.distribute.DistributedDataset):
            raise LoaderError(
                "Expected validation data as a KerasSequenceLoader, as it is or mapped. "
                f"Received: {type(dataloader).__name__}."
            )
        self.dataloader = dataloader

    def __repr__(self) -> str:
        return f"KerasSequenceValidater({self.dataloader!r})"

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Evaluate and add the results to `logs`."""
        del epoch
        results = self.model.evaluate(self.dataloader, verbose=0, return_dict=True)
        if not results:
            raise LoaderError(
                "Expected validation data with at least one row. Received: none. See what filters or "
                "skips its rows."
            )
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in results.items()})
