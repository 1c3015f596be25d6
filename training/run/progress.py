"""Training progress in a terminal and in a log: a line for each epoch."""

from __future__ import annotations

from typing import Any

import keras
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from training.run.single_numbers import single_numbers
from training.run.watch import Watch

_WIDTH = 80


class EpochLines(keras.callbacks.Callback):
    """A printed table of 80 columns, a row after each epoch; in a terminal a bar until then.

    Args:
        watch: knows steps, rows and seconds; precedes this callback in the list.
        console: where to print.
    """

    def __init__(self, watch: Watch, console: Console | None = None) -> None:
        super().__init__()
        self._watch = watch
        self._console = console or Console()
        self._titles: list[str] = []
        self._bar: Progress | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Show the bar."""
        if self._console.is_terminal:
            columns = (BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(
                TextColumn(f"epoch {epoch + 1}"), *columns, console=self._console, transient=True
            )
            self._bar.add_task("", total=self.params["steps"])
            self._bar.start()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._watch.step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Print the row, after a header if the columns have changed."""
        self.close()
        seconds, samples = self._watch.epoch_seconds, self._watch.epoch_samples
        cells = {
            "epoch": f"{epoch + 1}/{self.params['epochs']}",
            "seconds": f"{seconds:.1f}",
            "samples/s": f"{samples / seconds:,.0f}" if seconds else "",
        }
        # Losses and AUC first: they remain where not all columns fit.
        numbers = single_numbers(logs or {})
        names = sorted(numbers, key=lambda name: (not name.endswith(("loss", "auc")), name))
        cells |= {name: f"{numbers[name]:.4f}" for name in names}
        if list(cells) != self._titles:
            self._titles = list(cells)
            self._print(self._titles)
        self._print(list(cells.values()))

    def close(self) -> None:
        """Remove the bar, and show the cursor again; needed where an epoch has not ended."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, cells: list[str]) -> None:
        line = ""
        for title, cell in zip(self._titles, cells, strict=True):
            more = f"{cell:>{max(len(title), 9)}}  "
            if len(line) + len(more.rstrip()) > _WIDTH:
                break
            line += more
        self._console.print(line.rstrip(), highlight=False, soft_wrap=True)
