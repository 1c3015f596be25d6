"""Figures of a served model's inputs over time, and charts of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from serving.errors import ClientError, ColumnError
from serving.watch.metrics import Scrape, parse, scrape
from serving.watch.skew import Skew, restarted, skews, without
from serving.watch.skew_monitor import SkewMonitor
from serving.watch.view import FIGURES, View
from triton_models.preprocess.input_metrics import COUNTERS
from workflow.picture.line_chart import in_one_picture, line_chart
from workflow.picture.markup import safe
from workflow.schema.names import did_you_mean, listed

# More are seldom read, and a model may have thousands of columns.
_MOST_CHARTS = 24
_STYLE = """<style>
.skew { font: 14px/1.5 system-ui, sans-serif }
.skew > div { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)) }
.skew svg { max-width: 100%; height: auto }
</style>"""


class _Look(NamedTuple):
    """The metrics at one time, and the figures of the rows since the look before."""

    metrics: Scrape
    recent: Mapping[tuple[str, str, str], Skew]


class SkewHistory:
    """The inputs of a served model over time, compared with the training.

    Each look reads the metrics; its figures are of the rows since the look before. A notebook shows
    a line chart for each figure of each column, those that deviate from the training first.

    Args:
        source: an address of metrics, such as `TritonServer.metrics_url`; several of them; or a
            `SkewMonitor`. It is read at once, and again by each `look`. A server that does not answer
            a look, as during a restart, keeps its figures, and is named.
        window: minutes after which a look is forgotten. After a restart of the server the rows count
            that it has answered since.

    Raises:
        ClientError: `window` is not positive, there is no address, or one that is not of http.
        ServerUnavailableError: an address does not answer with metrics.

    Example:
        >>> history = SkewHistory(server.metrics_url)  # doctest: +SKIP
        >>> for _ in range(60):  # doctest: +SKIP
        ...     time.sleep(10)
        ...     history.look()
        >>> _ = Path("price.svg").write_text(history.to_svg("price"))  # doctest: +SKIP
    """

    def __init__(self, source: str | Iterable[str] | SkewMonitor, window: float = 60.0) -> None:
        if not window > 0:
            raise ClientError(
                "INVALID_INPUT", f"Expected a window of more than 0 minutes. Received: {window!r}."
            )
        self._source = source if isinstance(source, str | SkewMonitor) else tuple(source)
        self._window = window
        self._looks = deque([_Look(self._read(), {})])
        self._start = self._looks[0].metrics.time

    def _read(self, last: Scrape | None = None) -> Scrape:
        if isinstance(self._source, SkewMonitor):
            return parse(self._source.exposition())
        urls = (self._source,) if isinstance(self._source, str) else self._source
        return scrape(urls, last=last)

    def look(self) -> None:
        """Read the metrics now."""
        last = self._looks[-1].metrics
        now = self._read(last)
        recent = {_key(skew): skew for skew in skews(now, last)}
        if gone := restarted(now, last):
            # What an earlier server counted is not a part of the present one's counts.
            self._looks = deque(_Look(without(m, gone), r) for m, r in self._looks)
        self._looks.append(_Look(now, recent))
        while len(self._looks) > 2 and now.time - self._looks[0].metrics.time > self._window * 60:
            self._looks.popleft()

    def skews(self) -> list[Skew]:
        """The figures of all columns, of the rows in the window."""
        return self.view.skews()

    @property
    def view(self) -> View:
        """The tables that `ensemble watch` shows."""
        if len(self._looks) < 2:
            return View(self._looks[0].metrics)
        first, before, now = (self._looks[n].metrics for n in (0, -2, -1))
        return View(now, before, first)

    def to_svg(self, *columns: str) -> str:
        """The figures over time as an SVG picture, with a chart for each figure.

        Args:
            *columns: the columns to draw; by default all, up to 24 figures.

        Raises:
            ColumnError: the metrics have no such column.
        """
        charts, _ = self._charts(columns)
        return in_one_picture(charts, "Inputs over time")

    def to_html(self, *columns: str) -> str:
        """The figures over time as an HTML fragment, including styles.

        Args:
            *columns: as in `to_svg`.

        Raises:
            ColumnError: as in `to_svg`.
        """
        charts, count = self._charts(columns)
        rest = f"<p>{count:,} further figures: name their columns to see them.</p>" if count else ""
        return (
            f'<div class="skew">{_STYLE}<p>{safe(self._summary())}</p>'
            f"<div>{''.join(charts)}</div>{rest}</div>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return f"SkewHistory({self._summary()})"

    def _summary(self) -> str:
        figures = self.skews()
        minutes = (self._looks[-1].metrics.time - self._looks[0].metrics.time) / 60
        deviating = [f"{s.column} ({FIGURES[s.figure]})" for s in figures if s.deviates]
        silent = ", ".join(self._looks[-1].metrics.silent)
        return (
            f"{len(self._looks)} looks in {minutes:.1f} minutes, {len(figures)} figures, "
            f"deviating: {', '.join(deviating) or 'none'}"
            f"{f', not answering: {silent}' if silent else ''}"
        )

    def _charts(self, columns: Sequence[str]) -> tuple[list[str], int]:
        """The charts of the columns, those that deviate first, and how many were left out."""
        counted = self._looks[-1].metrics.find(COUNTERS["values"][0])
        names = list(dict.fromkeys(sample.labels["column"] for sample in counted))
        if unknown := [name for name in columns if name not in names]:
            raise ColumnError(
                "INVALID_INPUT",
                f"Expected columns that are counted: {listed(names) or 'none'}. "
                f"Received: {listed(unknown)}.{did_you_mean(unknown, names)}",
            )
        chosen = [skew for skew in self.skews() if not columns or skew.column in columns]
        chosen.sort(key=lambda skew: not skew.deviates)
        return [self._chart(skew) for skew in chosen[:_MOST_CHARTS]], len(chosen[_MOST_CHARTS:])

    def _chart(self, skew: Skew) -> str:
        """One figure of one column over time, beside the same in the training."""
        scale, unit = (1, "values a row") if skew.figure == "length" else (100, "% of values")
        points = [
            ((look.metrics.time - self._start) / 60, look.recent[_key(skew)].served * scale)
            for look in self._looks
            if _key(skew) in look.recent
        ]
        curves = {"served": points}
        if skew.expected is not None:
            curves["training"] = [(minute, skew.expected * scale) for minute, _ in points]
        title = (
            f"{skew.column}: {FIGURES[skew.figure]}{', deviates' * skew.deviates} ({skew.model})"
        )
        return line_chart(curves, title, "minutes since the first look", unit)


def _key(skew: Skew) -> tuple[str, str, str]:
    return skew.model, skew.column, skew.figure
