"""Metrics of a preprocessing step's inputs beside those of the server, for Prometheus.

An export copies this file beside `model.py`. Counts are collected in the step and reported from a
thread of its own, since each change of a metric is a message to the server's process.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any

# Seconds between reports.
PERIOD = 5.0
ALIVE = "nvt_step_alive_timestamp_seconds"
# The counters by the kinds of counts: their names and descriptions.
COUNTERS = {
    "rows": ("nvt_input_rows_total", "Rows that were looked at"),
    "values": ("nvt_input_values_total", "Values, or elements of lists, that are not null"),
    "nulls": ("nvt_input_nulls_total", "Values, or elements of lists, that are null or NaN"),
    "unknown": ("nvt_input_unknown_total", "Values outside the vocabulary"),
    "outside": ("nvt_input_out_of_range_total", "Values outside the range in the training"),
}
# The gauges by the kinds of expectations.
GAUGES = {
    "nulls": ("nvt_training_null_ratio", "Share of nulls in the training"),
    "unknown": ("nvt_training_unknown_ratio", "Share of unknown values to expect"),
    "length": ("nvt_training_values_per_row", "Mean number of a row's values in the training"),
    "minimum": ("nvt_training_minimum", "Least value in the training"),
    "maximum": ("nvt_training_maximum", "Greatest value in the training"),
}

Samples = Mapping[tuple[str, str], float]


class InputMetrics:
    """Counts as counters, and expectations from the training as gauges.

    Args:
        pb_utils: the module `triton_python_backend_utils`.
        labels: the labels of all metrics, which the step's instances share.
        instance: the name of this instance, which reports on its own that it runs.
        counted: the kinds of counts and the columns that can occur; "" for no column.
        expected: the value of each expectation, by its kind and column.
        take: returns the counts since the last call.
    """

    def __init__(
        self,
        pb_utils: Any,
        labels: Mapping[str, str],
        instance: str,
        counted: Samples,
        expected: Samples,
        take: Callable[[], Samples],
    ) -> None:
        self._take = take
        self._stopped = Event()
        family = pb_utils.MetricFamily
        self._counters = self._made(family, family.COUNTER, COUNTERS, counted, labels)
        self._gauges = self._made(family, family.GAUGE, GAUGES, expected, labels)
        for key, gauge in self._gauges.items():
            gauge.set(float(expected[key]))
        alive = {"alive": (ALIVE, "Time of the last report of the step")}
        (self._alive,) = self._made(
            family, family.GAUGE, alive, {("alive", ""): 0.0}, {**labels, "step": instance}
        ).values()
        self._report()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _made(
        self,
        family: Any,
        kind: Any,
        names: Mapping[str, tuple[str, str]],
        keys: Samples,
        labels: Mapping[str, str],
    ) -> dict[tuple[str, str], Any]:
        families = {}
        for key, (name, description) in names.items():
            if any(own == key for own, _ in keys):
                families[key] = _kept(family(name=name, description=description, kind=kind))
        return {
            (key, column): _kept(
                families[key].Metric(labels={**labels, **({"column": column} if column else {})})
            )
            for key, column in keys
        }

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD):
            self._report()

    def _report(self) -> None:
        for key, count in self._take().items():
            self._counters[key].increment(float(count))
        self._alive.set(time.time())

    def stop(self) -> None:
        """Report what is left, and end the thread; a step that has ended is not one that is silent."""
        self._stopped.set()
        self._thread.join()
        self._report()
        # The metric stays.
        self._alive.set(float("nan"))


def _kept(made: Any) -> Any:
    """A metric or a family that lives as long as its process, by a reference that is never released.

    Triton deletes what a model refers to after the memory that it shares with the process, and the
    deletion needs that memory: the process would crash at each end. Deleted earlier, in `finalize`, it
    would be taken from the step's other instances, with which the server shares it.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made
