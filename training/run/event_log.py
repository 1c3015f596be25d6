"""Curves for TensorBoard, written without the package tensorboard.

`keras.callbacks.TensorBoard` fails in `fit` if that package (51 MB with its dependencies) is not
installed, and does not record the speed of an epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError, unwritable
from training.run.single_numbers import single_numbers
from training.run.watch import Watch
from workflow.data.object_stores import expect_local

# As `tf.summary.scalar` writes; that function itself belongs to the package tensorboard.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class=1
)


# Steps between two values of `batch_loss`.
_EVERY = 100


class EventLog(keras.callbacks.Callback):
    """TensorBoard's curves, written: the loss within epochs, and each metric after each epoch.

    The package tensorboard is needed where the files are viewed, not where they are written, unlike
    with `keras.callbacks.TensorBoard`. The runs `train` and `validation` and the names of the
    curves are those of that callback.

    Args:
        folder: folder of the event files; existing files stay.
        watch: knows steps, rows and seconds; precedes this callback in the list.

    Raises:
        TrainingError: the folder is in an object store, cannot be made, or later not be written.
    """

    def __init__(self, folder: str | Path, watch: Watch) -> None:
        super().__init__()
        expect_local(folder, TrainingError)
        self._folder = Path(folder)
        try:  # now, rather than after an epoch
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainingError(
                f"Expected tensorboard as a folder to write to. Received: {error}."
            ) from error
        self._watch = watch
        self._writers: dict[str, Any] = {}
        self._first = 0

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Find the number of the first step, also in a resumed run."""
        optimizer = self.model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales the loss
        # The optimizer counts its updates: none in a step whose gradients are kept, or are not finite.
        self._first = int(inner.iterations) * (inner.gradient_accumulation_steps or 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write the mean loss of the epoch so far, every few steps."""
        if (batch + 1) % _EVERY < self.model.steps_per_execution:
            step = self._first + self._watch.step - 1
            self._write("train", step, {"batch_loss": (logs or {})["loss"]})

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the epoch's metrics, its speed, and the learning rate."""
        train, validation = {}, {}
        for name, value in single_numbers(logs or {}).items():
            if name.startswith("val_"):
                validation[f"epoch_{name.removeprefix('val_')}"] = value
            else:
                train[f"epoch_{name}"] = value
        train["epoch_learning_rate"] = float(self.model.optimizer.learning_rate)
        if self._watch.epoch_seconds:
            train["epoch_samples_per_second"] = (
                self._watch.epoch_samples / self._watch.epoch_seconds
            )
        self._write("train", epoch, train)
        self._write("validation", epoch, validation)
        self._first += self._watch.step

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _write(self, run: str, step: int, values: dict[str, Any]) -> None:
        if not values:
            return
        try:
            if run not in self._writers:
                self._writers[run] = tf.summary.create_file_writer(str(self._folder / run))
            with self._writers[run].as_default():
                for name, value in values.items():
                    tf.summary.write(name, tf.constant(value, tf.float32), step, metadata=_SCALAR)
            self._writers[run].flush()
        except tf.errors.OpError as error:
            raise unwritable(self._folder / run, error) from error
