"""The report of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workflow.picture.line_chart import line_chart
from workflow.schema.own_names import OwnNames

_EPOCHS = 6  # as many as fit into 80 columns beside the metrics' names


@dataclass(frozen=True, repr=False)
class TrainingReport(metaclass=OwnNames):
    """Report of a training run; prints as a table of metrics, with its curves in a notebook.

    Attributes:
        samples: rows trained on, over all epochs; after resuming from a checkpoint, since then.
        seconds: wall time of training, including tracing, without validation.
        loss_curve: the mean loss in up to 50 equal intervals of the run, in order; after resuming, from
            the beginning of the epoch that was interrupted.
        history: for each metric, `val_` metrics too, its value after each epoch; after resuming, of the
            epochs that have ended since then, and if nothing was left to train, of an evaluation of the
            validation data. As a frame: `polars.DataFrame(report.history)`.
        mixing: from how many row groups a batch draws rows; None for data other than a loader.

    Example:
        >>> report = train(model, train_data, valid_data)
        >>> report.val_auc
        0.7731
    """

    samples: int
    seconds: float
    loss_curve: tuple[float, ...]
    history: Mapping[str, tuple[float, ...]]
    mixing: int | None = None

    @property
    def samples_per_second(self) -> float:
        """Rows trained on in a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve in the last training epoch, if it was measured."""
        return self._last("auc")

    @property
    def val_auc(self) -> float | None:
        """The area under the ROC curve on the validation data, if it was measured."""
        return self._last("val_auc")

    def _last(self, metric: str) -> float | None:
        return self.history[metric][-1] if metric in self.history else None

    def to_svg(self) -> str:
        """The loss during the run as an SVG picture.

        Example:
            >>> _ = Path("loss.svg").write_text(report.to_svg())
        """
        count = len(self.loss_curve)
        points = [
            (self.samples * number / count, loss) for number, loss in enumerate(self.loss_curve, 1)
        ]
        return line_chart({"loss": points}, "Training loss", "samples", "loss")

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>{self.to_svg() if self.loss_curve else ''}"

    def __repr__(self) -> str:
        """The run in one line, with the last value of each metric."""
        last = "".join(f", {name}={values[-1]:.4f}" for name, values in self.history.items())
        return f"TrainingReport(samples={self.samples}, seconds={self.seconds:.1f}{last})"

    def __str__(self) -> str:
        """A table: the run in one line, then each metric after each of the last epochs."""
        speed = f"{self.samples_per_second:,.0f} samples/s"
        lines = [f"{self.samples:,} samples in {self.seconds:.1f} s, {speed}"]
        if not self.samples:
            lines = ["Nothing was trained: the checkpoint is from the last epoch."]
        elif self.mixing is not None:
            groups = "one row group" if self.mixing == 1 else f"{self.mixing:,} row groups"
            lines.append(f"A batch draws from {groups}.")
        width = max(map(len, self.history), default=0)
        for metric, values in self.history.items():
            shown = "  ".join(f"{value:.4f}" for value in values[-_EPOCHS:])
            lines.append(f"{metric:<{width}}  {'... ' if len(values) > _EPOCHS else ''}{shown}")
        return "\n".join(lines)
