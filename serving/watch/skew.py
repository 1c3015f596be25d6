"""Comparison of a served model's inputs with its training, from metrics."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from serving.watch.metrics import Scrape, model_of
from triton_models.preprocess.input_metrics import ALIVE, COUNTERS, GAUGES
from workflow.schema.own_names import OwnNames

# A share may differ from the training by this much, and a mean length by this part of it.
SHARE, LENGTH = 0.01, 0.1
# Standard errors beyond which chance does not explain a difference.
ERRORS = 4.0
_COUNTED = frozenset(name for name, _ in COUNTERS.values())


@dataclass(frozen=True)
class Skew(metaclass=OwnNames):
    """A figure of one column, in requests and in the training.

    Attributes:
        model: the model that clients ask, with its version, and with the address if several were read.
        column: the column.
        figure: "nulls", "unknown", "outside" (of the range in the training), or "length".
        served: the share of the values, or the mean number of a row's values.
        expected: the same according to the training; None if that is not known.
        deviates: whether the two differ by more than 0.01, or of a mean length by a tenth, and by
            more than chance explains.

    Example:
        >>> skew = Skew("shop 1", "price", "nulls", served=0.5, expected=0.25, deviates=True)
        >>> skew.served - skew.expected
        0.25
    """

    model: str
    column: str
    figure: str
    served: float
    expected: float | None
    deviates: bool


def skews(now: Scrape, before: Scrape | None = None) -> list[Skew]:
    r"""The figures of all columns, ordered by model and column, without versions that are unloaded.

    Args:
        now: the metrics.
        before: earlier ones; the figures are of the rows between the two, or of all rows. Of a model
            whose counters have begun anew since they are of the rows since then.

    Example:
        >>> from serving.watch.metrics import parse
        >>> labels = 'model="m",version="1",column="age"'
        >>> text = f'nvt_input_values_total{{{labels}}} 60\nnvt_input_nulls_total{{{labels}}} 40'
        >>> skews(parse(text + f'\nnvt_training_null_ratio{{{labels}}} 0.1'))
        [Skew(model='m 1', column='age', figure='nulls', served=0.4, expected=0.1, deviates=True)]
    """
    figures = []
    if before is not None:
        before = without(before, restarted(now, before))
    samples, gone = now.find(COUNTERS["values"][0]), _unloaded(now)
    values = _Values(now), _Values(before)
    for sample in sorted(samples, key=lambda s: (model_of(s.labels), s.labels["column"])):
        if model_of(sample.labels) not in gone:
            column = _Column(sample.labels, *values)
            figures += [skew for skew in column.skews() if skew is not None]
    return figures


def _unloaded(now: Scrape) -> set[str]:
    """The models whose steps have all ended; the server keeps their metrics, as after a rollback."""
    steps = now.find(ALIVE)
    loaded = {model_of(step.labels) for step in steps if not math.isnan(step.value)}
    return {model_of(step.labels) for step in steps} - loaded


def restarted(now: Scrape, before: Scrape) -> set[str]:
    """The models whose counters began anew at 0 between two scrapes, as after a restart of the server.

    One counter that fell shows it, although others may have passed their earlier numbers.
    """
    values = _Values(now)
    return {
        model_of(sample.labels)
        for name in _COUNTED
        for sample in before.find(name)
        if (values.find(name, sample.labels) or 0.0) < sample.value
    }


def without(scrape: Scrape, models: Collection[str]) -> Scrape:
    """The metrics without the counters of the inputs of some models, named as `model_of` does."""
    if not models:
        return scrape
    samples = {
        name: [s for s in series if name not in _COUNTED or model_of(s.labels) not in models]
        for name, series in scrape.samples.items()
    }
    return replace(scrape, samples=samples)


class _Values:
    """The values of a scrape by name and labels; none without a scrape."""

    def __init__(self, scrape: Scrape | None) -> None:
        self._found = {} if scrape is None else scrape.by_labels()

    def find(self, name: str, labels: Mapping[str, str]) -> float | None:
        """The sample with these labels and no others; None without such a sample."""
        return self._found.get((name, frozenset(labels.items())))


@dataclass(frozen=True)
class _Column:
    labels: Mapping[str, str]
    now: _Values
    before: _Values

    def skews(self) -> list[Skew | None]:
        values, nulls = self._count("values"), self._count("nulls")
        return [
            self._share("nulls", nulls, nulls + values, self._expected("nulls")),
            self._share("unknown", self._count("unknown"), values, self._expected("unknown")),
            self._share("outside", self._count("outside"), values, 0.0),
            self._length(values),
        ]

    def _expected(self, kind: str) -> float | None:
        return self.now.find(GAUGES[kind][0], self.labels)

    def _count(self, kind: str) -> float:
        """The count between the two times; after a restart of the server, since then."""
        labels = {k: v for k, v in self.labels.items() if k != "column" or kind != "rows"}
        now, before = (values.find(COUNTERS[kind][0], labels) for values in (self.now, self.before))
        return (now or 0.0) - (before or 0.0)

    def _share(
        self, figure: str, count: float, total: float, expected: float | None
    ) -> Skew | None:
        is_counted = self.now.find(COUNTERS[figure][0], self.labels) is not None
        if not is_counted or not total:
            return None
        # A scrape in the middle of a step's report has some of its counts alone.
        share = min(count / total, 1.0)
        deviates = expected is not None and _is_beyond(figure, *_interval(share, total), expected)
        return self._skew(figure, share, expected, deviates)

    def _length(self, values: float) -> Skew | None:
        expected, rows = self._expected("length"), self._count("rows")
        if expected is None or not rows:
            return None
        # The variance of lengths that are distributed geometrically, which is a wide distribution.
        error = math.sqrt(expected * (expected + 1) / rows)
        deviates = abs(values / rows - expected) > LENGTH * expected + ERRORS * error
        return self._skew("length", values / rows, expected, deviates)

    def _skew(self, figure: str, served: float, expected: float | None, deviates: bool) -> Skew:
        column = self.labels["column"]
        return Skew(model_of(self.labels), column, figure, served, expected, deviates)


def _interval(share: float, total: float) -> tuple[float, float]:
    """The interval of shares that explain an observed one.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927.
    """
    square = ERRORS * ERRORS / total
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
    return middle - half, middle + half


def _is_beyond(figure: str, low: float, high: float, expected: float) -> bool:
    """Whether the interval is too far from the training; fewer unknown values do no harm."""
    return low > expected + SHARE or (figure == "nulls" and high < expected - SHARE)
