"""Callback that monitors training in Keras."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from loader import LoaderCheckpoint
from training.errors import TrainingError
from training.private import layers_of
from training.run.data_check import first_nan, no_rows
from training.run.label_values import LabelValues
from training.run.rows import RowCount

_CURVE_POINTS = 50
_LARGE = 1 << 24  # values: a table, which takes long to read


@dataclass(frozen=True)
class _Call:
    """Keras' record of one or more steps: the mean loss since the epoch began."""

    epoch: int
    first: int
    last: int
    rows: float  # of the epoch so far, a worker's share
    loss: float

    def __str__(self) -> str:
        steps = (
            f"step {self.last}" if self.first == self.last else f"steps {self.first} to {self.last}"
        )
        return f"{steps} of epoch {self.epoch}"


class Watch(keras.callbacks.Callback):
    """The time of training without validation, its rows, its loss curve, and a check for NaN.

    It precedes any callback that saves the model, so that no NaN is saved.

    Attributes:
        rows: the count of rows, while its `counting` is active.
        samples: rows trained on so far.
        seconds: time that these took.
        epoch_samples: rows of the last epoch, known before it is validated.
        epoch_seconds: time that these took.
        step: the last step taken in this epoch, from 1.

    Args:
        data: the training data, searched for NaN when the loss or a weight is not a number.
        validation_data: that of validation, or None, searched when its loss is not a number.
        labels: the check of labels, which looks at those of every step.
        stop_on_nan: whether a loss, of validation too, or a weight that is not a number ends the run.
        saver: what saves the model while it trains, if anything: then the run ends within the step.
    """

    def __init__(
        self,
        data: Any,
        validation_data: Any,
        labels: LabelValues,
        *,
        stop_on_nan: bool,
        saver: LoaderCheckpoint | None,
    ) -> None:
        super().__init__()
        self._labels = labels
        self.rows = RowCount()
        self.samples = 0
        self.seconds = 0.0
        self.epoch_samples = 0
        self.epoch_seconds = 0.0
        self.step = 0
        self._data = data
        self._validation_data = validation_data
        self._stop_on_nan = stop_on_nan
        self._saver = saver
        self._calls: list[_Call] = []
        self._epoch = 0
        self._started: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Start the clock."""
        self._epoch = epoch
        self.step = 0
        self.rows.take()
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keep the loss, and stop at one that is not a number."""
        value = float((logs or {}).get("loss", 0.0))
        first = self.step + 1
        # In an epoch's last call Keras also counts steps for which there were no batches.
        self.step = min(batch + 1, self.params["steps"] or batch + 1)
        before = 0 if self._saver is None else self._saver.rows_before
        rows = before + self.rows.count()
        self._calls.append(_Call(self._epoch + 1, first, self.step, rows, value))
        self._labels.check()
        if self._stop_on_nan and not math.isfinite(value):
            self.model.stop_training = True
            if self._saver is not None:
                self._check_losses()

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Stop the clock."""
        self._end_of_training()

    def on_test_end(self, logs: Any = None) -> None:
        """Raise TrainingError if the validation data has no rows, which may show only as it is read."""
        if not logs:
            raise no_rows("validation_data")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop the clock, if there was no validation, and check the last losses."""
        self._end_of_training()
        self._check_losses()
        loss = float((logs or {}).get("val_loss", 0.0))
        if self._stop_on_nan and not math.isfinite(loss):
            # No epoch would be better than another: `patience` would end with the first one's weights.
            raise TrainingError(
                f"Expected the loss of validation_data to be a number. Received: {loss} after epoch "
                f"{epoch + 1}. {self._advice(self._validation_data)}"
            )

    def _end_of_training(self) -> None:
        """Close an epoch, before it is validated and saved; only once."""
        if self._started is None:
            return
        self.epoch_seconds = time.perf_counter() - self._started
        self.epoch_samples = self.rows.take()
        self.seconds += self.epoch_seconds
        self.samples += self.epoch_samples
        self._started = None
        self._check_losses()
        self._check_weights()

    def _check_losses(self) -> None:
        """Raise TrainingError at labels that do not suit the loss, or at the first loss that is NaN."""
        self._labels.check()
        if not self._stop_on_nan:
            return
        for call in self._calls:
            if not math.isfinite(call.loss):
                raise TrainingError(
                    f"Expected the loss to stay a number. Received: {call.loss} at {call}. "
                    f"{self._advice(self._data)}"
                )

    def _check_weights(self) -> None:
        """Raise TrainingError if a weight of a layer is not a number."""
        if not self._stop_on_nan:
            return
        # A relu on a CPU turns NaN into 0: the loss then looks normal, although weights are lost.
        for variable in self.model.trainable_variables:
            if math.prod(variable.shape) < _LARGE and not np.isfinite(variable.numpy()).all():
                raise TrainingError(
                    f"Expected weights to stay numbers. Received: NaN or infinity in "
                    f"{variable.path!r} after epoch {self._epoch + 1}. {self._advice(self._data)}"
                )

    def _advice(self, data: Any) -> str:
        """The cause of a number that is none, as far as the data shows it, and what to do."""
        number, columns = first_nan(data)
        if columns:
            batch = f"batch {number + 1} of an epoch" if number else "the first batch"
            advice = (
                f"There is NaN or infinity in {batch}, in {', '.join(columns)}: a null of a "
                "float column arrives as NaN. "
            )
            if "the label" in columns:
                # Filled, a row of unknown outcome would be learnt as one of a certain outcome.
                advice += "Leave rows without a label out of the data, frame.drop_nulls(label) in Polars. "
                if len(getattr(self.model, "outputs", None) or ()) > 1:
                    advice += (
                        "If other outputs have theirs, fill it and give the row a weight of 0 for this one: "
                        "data of (x, y, {output: weights}). "
                    )
            if "the weights of rows" in columns:
                advice += (
                    "Fill a missing weight in the workflow: ops.FillMissing(0) leaves its row out of the "
                    "loss, ops.FillMissing(1) counts it once. "
                )
            if set(columns) - {"the label", "the weights of rows"}:
                advice += "Fill it in the workflow (ops.FillMissing), or leave the column out. "
            return f"{advice}Clip infinities (ops.Clip)."
        advice = (
            "Lower the learning rate, clip the gradients (clipnorm=1.0), and look for NaN or very "
            "large values in the inputs."
        )
        if any(isinstance(x, keras.layers.GlobalAveragePooling1D) for x in layers_of(self.model)):
            advice += (
                " GlobalAveragePooling1D makes NaN of a row whose steps are all masked, such as an empty "
                "list behind Embedding(mask_zero=True): give such lists an id that stands for none."
            )
        return advice

    def loss_curve(self) -> tuple[float, ...]:
        """Mean losses of intervals of equally many rows, from the running means that Keras logs."""
        rows, totals = [0.0], [0.0]  # since the run began
        epoch, before = 0, (0.0, 0.0)
        for call in self._calls:
            if call.epoch != epoch:
                epoch, before = call.epoch, (rows[-1], totals[-1])
            rows.append(before[0] + call.rows)
            totals.append(before[1] + call.rows * call.loss)
        ends = np.linspace(0, rows[-1], 1 + min(_CURVE_POINTS, len(self._calls)))
        return tuple((np.diff(np.interp(ends, rows, totals)) / np.diff(ends)).tolist())
