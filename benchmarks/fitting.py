"""`model.fit` as a contestant: the clock of its steps, and the count of rows it really trained on."""

from __future__ import annotations

import gc
import time
from typing import Any

import keras
import tensorflow as tf

from benchmarks.measure import Contestant, Taken


class Clock(keras.callbacks.Callback):
    """The time of a fit's steps after the first ones, which collect garbage and fill buffers.

    Keras reads the metrics before it calls a callback, and waits for the GPU with that.

    Args:
        first: steps that are not timed; of none, the start and the end of the fit count, too.

    Attributes:
        taken: the cost of the others; its amount is the rows that the loss was computed of, however
            many steps were asked for.
    """

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.taken = Taken(0, 0, 0)
        self._first = first
        self._start = (0.0, 0.0, 0)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Starts, where all steps count."""
        if self._first == 0:
            self._start = (time.perf_counter(), time.process_time(), 0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Start after the first steps, or note how late it is."""
        if batch + 1 == self._first:
            self._start = (time.perf_counter(), time.process_time(), self._rows())
        else:
            self._stop()

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Ends, where all steps count, and counts the rows."""
        if self._first == 0:
            self._stop()
        rows = self._rows() - self._start[2]
        self.taken = Taken(self.taken.seconds, self.taken.processor, rows)

    def _stop(self) -> None:
        start, processor, _ = self._start
        self.taken = Taken(time.perf_counter() - start, time.process_time() - processor, 0)

    def _rows(self) -> int:
        loss = next(metric for metric in self.model.metrics if metric.name == "loss")
        return int(tf.convert_to_tensor(loss.count.value))


def row(racer: Contestant, base: Contestant, batch: int) -> dict[str, Any]:
    """A line of a table of fits with batches of so many rows; ratios are to another one."""
    return {
        "": racer.name,
        "ms a step": racer.seconds / (racer.amount / batch) * 1e3,
        "samples/s": racer.rate,
        "ratio": f"{racer.against(base).median:.2f}x",
        "processor": f"{racer.against(base, 'processor').median:.2f}x",
        "loss": f"{racer.loss:.4f}" if isinstance(racer, Fit) else "",
    }


class Fit(Contestant):
    """A compiled model that trains on some data, some steps at a time.

    Args:
        name: for the table.
        model: compiled; it trains once before it is timed, to be traced.
        data: batches; endless ones, or those of an epoch that is long enough.
        batch: rows of a batch, those of all workers together.
        steps: of a run.
        first: steps of each run, before those, that are not timed; a multiple of the model's
            `steps_per_execution`.
        warm_up: steps before the first run.

    Attributes:
        model: the model.
        loss: mean of the last run's.
    """

    def __init__(
        self,
        name: str,
        model: keras.Model,
        data: Any,
        batch: int,
        steps: int,
        *,
        first: int = 0,
        warm_up: int | None = None,
    ) -> None:
        super().__init__(name, self._run, batch * steps)
        self.model, self._data = model, data
        self._steps, self._first = steps, first
        self.loss = self._fit(warm_up or first + steps)

    def release(self) -> None:
        """Give back the memory of model and data; there are no runs after this."""
        del self.model, self._data
        keras.backend.clear_session()
        gc.collect()

    def _run(self) -> Taken:
        clock = Clock(self._first)
        self.loss = self._fit(self._first + self._steps, clock)
        return clock.taken

    def _fit(self, steps: int, *callbacks: keras.callbacks.Callback) -> float:
        history = self.model.fit(
            self._data, steps_per_epoch=steps, callbacks=[*callbacks], verbose=0, shuffle=False
        )
        return float(history.history["loss"][0])
