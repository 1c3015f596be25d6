"""One call that fits a model and reports what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError

_SAMPLES = "samples"
_CURVE_POINTS = 50


@dataclass(frozen=True)
class TrainingReport:
    """What a training run did.

    Attributes:
        samples: rows trained on, over all epochs.
        seconds: wall time of training, tracing included, validation not.
        loss_curve: the mean loss of up to 50 equal stretches of the run, in order.
        history: for each metric, `val_` metrics too, its value after each epoch.

    Example:
        >>> report = train(model, train_data, valid_data)
        >>> report.val_auc
        0.7731
    """

    samples: int
    seconds: float
    loss_curve: tuple[float, ...]
    history: Mapping[str, tuple[float, ...]]

    @property
    def samples_per_second(self) -> float:
        """Rows trained on in a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve in the last epoch of training, where it was measured."""
        return self._last("auc")

    @property
    def val_auc(self) -> float | None:
        """The area under the ROC curve on the validation data, where it was measured."""
        return self._last("val_auc")

    def _last(self, metric: str) -> float | None:
        return self.history[metric][-1] if metric in self.history else None

    def __str__(self) -> str:
        """A table: the run in one line, then each metric after each epoch."""
        speed = f"{self.samples_per_second:,.0f} samples/s"
        lines = [f"{self.samples:,} samples in {self.seconds:.1f} s, {speed}"]
        width = max(map(len, self.history), default=0)
        for metric, values in self.history.items():
            lines.append(f"{metric:<{width}}  " + "  ".join(f"{value:.4f}" for value in values))
        return "\n".join(lines)


def train(
    model: keras.Model,
    train_data: Any,
    validation_data: Any = None,
    *,
    epochs: int = 1,
    optimizer: Any = "adam",
    loss: Any = "binary_crossentropy",
    metrics: Sequence[Any] | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    stop_on_nan: bool = True,
    verbose: int | str = 0,
) -> TrainingReport:
    """Compiles and fits a model; `model.compile` and `model.fit` do as well without it.

    Args:
        model: a Keras model with one output.
        train_data: a `KerasSequenceLoader`, a `tf.data.Dataset`, a `keras.utils.PyDataset`, or
            a tuple `(x, y)` of arrays, which Keras then shuffles.
        validation_data: the same kinds, or None.
        epochs: how often to go through the data.
        optimizer: a Keras optimizer or its name.
        loss: a Keras loss or its name.
        metrics: Keras metrics; the area under the ROC curve when None.
        callbacks: further Keras callbacks.
        stop_on_nan: whether to end a run whose loss is no longer a number.
        verbose: as in `model.fit`.

    Returns:
        Speed, loss curve and metrics.

    Raises:
        TrainingError: no data, or the loss is not a number; the model then keeps the weights
            it had at that moment.

    Example:
        >>> print(train(model, train_data, valid_data, optimizer=keras.optimizers.Adam(0.01)))
        1,800,000 samples in 31.0 s, 58,064 samples/s
        auc       0.7412
        loss      0.5840
        val_auc   0.7731
        val_loss  0.5633
    """
    if epochs < 1:
        raise TrainingError(f"Expected at least one epoch. Received: epochs={epochs}.")
    metrics = [keras.metrics.AUC(name="auc")] if metrics is None else list(metrics)
    model.compile(optimizer, loss, metrics=[*metrics, _SampleCount(name=_SAMPLES)])
    watch = _Watch(stop_on_nan)
    x, y, weights = keras.utils.unpack_x_y_sample_weight(train_data)
    history = model.fit(
        x,
        y,
        sample_weight=weights,
        validation_data=validation_data,
        epochs=epochs,
        callbacks=[*callbacks, watch],
        verbose=verbose,
        shuffle=isinstance(train_data, (tuple, list)),  # other data comes in its own order
    ).history
    if stop_on_nan:
        watch.check()
    return _report(history, watch)


def _report(history: Mapping[str, Sequence[float]], watch: _Watch) -> TrainingReport:
    samples = round(sum(history.get(_SAMPLES, ())))
    if not samples:
        raise TrainingError("Expected training data with at least one row. Received: none.")
    kept = {
        name: tuple(map(float, values))
        for name, values in sorted(history.items())
        if not name.endswith(_SAMPLES)
    }
    return TrainingReport(samples, watch.seconds, watch.loss_curve(), kept)


class _SampleCount(keras.metrics.Metric):
    """Counts rows, since no kind of data says how many it holds and the last batch is short."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dtype="int64", **options)
        self.count = self.add_variable((), "zeros", name="count", dtype="int64")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:  # noqa: ARG002
        self.count.assign_add(tf.shape(y_true, out_type=tf.int64)[0])

    def result(self) -> Any:
        # A copy: validation counts in the same variable before Keras reads this.
        return tf.identity(self.count.value)


class _Watch(keras.callbacks.Callback):
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
        self._losses.append({})
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        value = float((logs or {}).get("loss", 0.0))
        self._losses[-1][batch] = value
        if self.stop_on_nan and not math.isfinite(value):
            self.model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        self._stop_clock()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
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
