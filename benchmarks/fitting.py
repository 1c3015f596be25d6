"""`model.fit` as a contestant: the clock of its steps, the count of rows it trained on, and its race."""

from __future__ import annotations

import gc
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from benchmarks.measure import Contestant, Taken, race


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
        first_loss: the mean of the steps before the first run.
        loss: that of the last run.
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
        self.first_loss = self.loss = self._fit(warm_up or first + steps)

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


def measure(racers: Iterable[Contestant], given: Namespace) -> Iterator[dict[str, Any]]:
    """Lines of a table of fits; ratios are to the first.

    On a CPU all take turns. A GPU's memory is too small for all: there one is measured and gives its
    memory back before the next one is made.

    Args:
        racers: fits, and what else is compared with them; on a GPU made as they are taken.
        given: the device, the rounds, and the rows of a batch.
    """
    on_gpu = given.device == "gpu"
    groups = ([racer] for racer in racers) if on_gpu else [[*racers]]
    first = None
    for group in groups:
        race(group, given.rounds)
        for racer in group:
            first = first or racer
            yield _row(racer, first, given.batch)
            if on_gpu and isinstance(racer, Fit):
                racer.release()


def _row(racer: Contestant, first: Contestant, batch: int) -> dict[str, Any]:
    losses = {}
    if isinstance(racer, Fit):
        losses = {
            "loss of the first steps": f"{racer.first_loss:.4f}",
            "loss": f"{racer.loss:.4f}",
        }
    return {
        "": racer.name,
        "ms a step": racer.seconds / (racer.amount / batch) * 1e3,
        "samples/s": racer.rate,
        "ratio": f"{racer.against(first).median:.2f}x",
        "processor": f"{racer.against(first, 'processor').median:.2f}x",
        **losses,
    }
