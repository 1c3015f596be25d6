"""Metrics as tables for a terminal of 80 columns."""

from __future__ import annotations

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from serving.watch.metrics import Scrape, model_of
from serving.watch.skew import Skew, skews

WIDTH = 80
MARK = "<<"
# Triton's metrics; `skew.py` reads those of the inputs.
SUCCESS, FAILURE = "nv_inference_request_success", "nv_inference_request_failure"
PENDING = "nv_inference_pending_request_count"
LATENCY, QUEUE = "nv_inference_request_summary_us", "nv_inference_queue_summary_us"
FIGURES = {
    "nulls": "nulls",
    "unknown": "unknown",
    "outside": "out of range",
    "length": "list length",
}


@dataclass(frozen=True)
class View:
    """Metrics at one time, compared with earlier ones.

    Attributes:
        now: the metrics.
        before: those of the last time, for rates; None for numbers since the server's start.
        start: those from which on inputs are counted; None for all.
    """

    now: Scrape
    before: Scrape | None = None
    start: Scrape | None = None

    def skews(self) -> list[Skew]:
        """The figures of all columns."""
        return skews(self.now, self.start)

    def models(self) -> Table:
        """A row for each version of each model on each server, and for each server without an answer."""
        unit = "/s" if self.before else ""
        titles = (f"requests{unit}", f"failed{unit}", "p50 ms", "p99 ms", "queue p99", "waiting")
        table = _table(("model",), titles)
        for sample in sorted(self.now.find(SUCCESS), key=lambda s: model_of(s.labels)):
            model = dict(sample.labels)
            if self.now.is_silent(model):
                continue
            pending = self.now.value(PENDING, **model)
            table.add_row(
                Text(model_of(model)),
                self._rate(SUCCESS, model),
                self._rate(FAILURE, model),
                self._quantile(LATENCY, model, "0.5"),
                self._quantile(LATENCY, model, "0.99"),
                self._quantile(QUEUE, model, "0.99"),
                "-" if pending is None else f"{pending:,.0f}",
            )
        for server in self.now.silent:
            rest = ["-"] * (len(titles) - 1)
            table.add_row(Text(server), "no answer", *rest, style="bold red")
        return table

    def inputs(self) -> Table:
        """A row for each figure of each column, with a mark where it deviates from the training."""
        table = _table(("model", "column", "figure"), ("served", "training", ""))
        for skew in self.skews():
            served, expected = (_figure(skew, value) for value in (skew.served, skew.expected))
            table.add_row(
                Text(skew.model),
                Text(skew.column),
                FIGURES[skew.figure],
                served,
                expected,
                MARK if skew.deviates else "",
                style="bold red" if skew.deviates else None,
            )
        return table

    def _rate(self, name: str, labels: dict[str, str]) -> str:
        now = self.now.value(name, **labels) or 0.0
        if self.before is None:
            return f"{now:,.0f}"
        if self.before.is_silent(labels):  # Its requests are those of a longer time.
            return "-"
        then = self.before.value(name, **labels) or 0.0
        if then > now:  # After a restart of the server the counters begin at 0.
            then = 0.0
        return f"{(now - then) / max(self.now.time - self.before.time, 1e-9):,.1f}"

    def _quantile(self, name: str, labels: dict[str, str], quantile: str) -> str:
        value = self.now.value(name, **labels, quantile=quantile)
        # NaN if there was no request for a while.
        return "-" if value is None or value != value else f"{value / 1e3:,.2f}"  # noqa: PLR0124


def _table(names: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, width=WIDTH)
    for title in names:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _figure(skew: Skew, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if skew.figure == "length" else f"{value:.2%}"
