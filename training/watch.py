"""What looks on while Keras trains."""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError

_CURVE_POINTS = 50


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class SampleCount(keras.metrics.Metric):
    """Counts rows, since no kind of data says how many it holds and the last batch is short."""

    def __init__(self, name: str, dtype: str = "int64") -> None:
        super().__init__(dtype=dtype, name=name)
        self.count = self.add_variable((), "zeros", name="count", dtype="int64")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # noqa: ARG002
        """Counts a batch."""
        self.count.assign_add(tf.shape(y_true, out_type=tf.int64)[0])

    def result(self) -> Any:
        """The rows so far."""
        # A copy: validation counts in the same variable before Keras reads this.
        return tf.identity(self.count.value)


class Watch(keras.callbacks.Callback):
    """Times the training alone, keeps the loss curve, and notices a loss that is no number."""

    # Keras then runs it beside the steps, so reading the loss does not stall a GPU.
    async_safe = True

    def __init__(self, stop_on_nan: bool) -> None:
        super().__init__()
        self.stop_on_nan = stop_on_nan
        self.seconds = 0.0
        self._losses: list[dict[int, float]] = []
        self._started: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Starts the clock."""
        self._losses.append({})
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keeps the loss, and stops at one that is no number."""
        value = float((logs or {}).get("loss", 0.0))
        self._losses[-1][batch] = value
        if self.stop_on_nan and not math.isfinite(value):
            self.model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Stops the clock."""
        self._stop_clock()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Stops the clock."""
        self._stop_clock()

    def _stop_clock(self) -> None:
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started
            self._started = None

    def check(self) -> None:
        """Raises TrainingError at the first step whose loss is not a number."""
        for epoch, losses in enumerate(self._losses, 1):
            # Steps are reported from several threads, so in any order.
            for step in sorted(losses):
                if not math.isfinite(losses[step]):
                    raise TrainingError(
                        f"Expected the loss to stay a number. Received: {losses[step]} at step "
                        f"{step + 1} of epoch {epoch}. Lower the learning rate, clip the gradients "
                        "(clipnorm=1.0), and look for NaN or very large values in the inputs."
                    )

    def loss_curve(self) -> tuple[float, ...]:
        """Means of equal stretches, from the running means that Keras logs."""
        steps: list[float] = []
        for epoch in self._losses:
            totals = [(step + 1) * epoch[step] for step in sorted(epoch)]
            steps += [total - before for total, before in zip(totals, [0.0, *totals], strict=False)]
        size = max(1, math.ceil(len(steps) / _CURVE_POINTS))
        stretches = [steps[start : start + size] for start in range(0, len(steps), size)]
        return tuple(sum(part) / len(part) for part in stretches)
