"""Curves for TensorBoard, written without it.

`keras.callbacks.TensorBoard` stops `fit` where the package tensorboard (51 MB with what it needs) is
not installed, and does not write how fast an epoch was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.run.watch import Watch

# What `tf.summary.scalar` writes; that function itself is a part of the package tensorboard.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class=1
)


class EventLog(keras.callbacks.Callback):
    """Writes what TensorBoard draws: the loss within epochs, and each metric after each epoch.

    The package tensorboard has to be there where the files are looked at, not where they are
    written, which `keras.callbacks.TensorBoard` asks for. The runs `train` and `validation` and
    the names of the curves are those of that callback.

    Args:
        folder: for the event files, beside those that are there.
        watch: knows steps, rows and seconds; it comes before this among the callbacks.
        every: how many steps apart the values of `batch_loss` are.

    Raises:
        TrainingError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path, watch: Watch, every: int = 100) -> None:
        super().__init__()
        self._folder = Path(folder)
        try:  # now, and not after an epoch
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrainingError(
                f"Expected tensorboard as a folder to write to. Received: {error}."
            ) from error
        self._watch = watch
        self._every = every
        self._writers: dict[str, Any] = {}
        self._first = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Finds the number of the epoch's first step, in a run that goes on as well."""
        self._first = int(self.model.optimizer.iterations)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes the mean loss of the epoch up to here, now and then."""
        if (batch + 1) % self._every < self.model.steps_per_execution:
            step = self._first + self._watch.step - 1
            self._write("train", step, {"batch_loss": (logs or {})["loss"]})

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes the epoch's metrics, how fast it was, and the learning rate."""
        own, others = {}, {}
        for name, value in (logs or {}).items():
            if name.startswith("val_"):
                others[f"epoch_{name.removeprefix('val_')}"] = value
            else:
                own[f"epoch_{name}"] = value
        own["epoch_learning_rate"] = float(self.model.optimizer.learning_rate)
        if self._watch.epoch_seconds:
            own["epoch_samples_per_second"] = self._watch.epoch_samples / self._watch.epoch_seconds
        self._write("train", epoch, own)
        self._write("validation", epoch, others)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Closes the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _write(self, run: str, step: int, values: dict[str, Any]) -> None:
        if not values:
            return
        if run not in self._writers:
            self._writers[run] = tf.summary.create_file_writer(str(self._folder / run))
        with self._writers[run].as_default():
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), step, metadata=_SCALAR)
        self._writers[run].flush()
