"""What a training run did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
