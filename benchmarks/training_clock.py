"""Time of training steps without that of the start of `model.fit`."""

from __future__ import annotations

import time
from typing import Any

import keras


class Clock(keras.callbacks.Callback):
    """Starts after the first steps of a `model.fit`, which collect garbage and fill buffers.

    Args:
        first: how many steps that are.

    Attributes:
        seconds: from then to the end of the last step.
        work: processor time of all threads in that time.
    """

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first
        self._start = (0.0, 0.0)
        self.seconds = self.work = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Starts, or notes how late it is."""
        now = (time.perf_counter(), time.process_time())
        if batch + 1 == self._first:
            self._start = now
        self.seconds, self.work = now[0] - self._start[0], now[1] - self._start[1]
