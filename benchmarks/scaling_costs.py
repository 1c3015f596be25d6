"""Growth of measured costs: exponents, lists beside flat columns, and tables of these."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.measure import show

ACTIONS = ("fit", "collect", "streaming", "parquet", "numpy")
# In seconds and MB: a difference below is not told from the noise of a shared machine.
NOISE = {"cpu": 0.02, "peak": 4.0}
MOST_EXPONENT, MOST_OF_LISTS = 1.15, 1.5
# Streamed, a few parts of 100,000 rows are in hand, however large the data is: of lists these hold
# ten times the values.
MOST_IN_HAND = 32.0
# In these actions the data is in memory; what files cost is also their format's, which has lists by
# two levels of lengths.
IN_MEMORY = ("fit", "collect", "numpy")
# Work for each row and entry would make it one. A random access that leaves the caches costs ten
# times as much, and rows of more groups are put together in more steps.
MOST_OF_TABLE = 0.5
# Seconds for each value: those of lists are copied once, to be flat.
FLATTENED = 5e-8
UNITS = {"cpu": "time", "peak": "memory"}


@dataclass(frozen=True)
class Measured:
    """The cost of one action.

    Attributes:
        form: "scalar" or "list".
        table: the entries of the vocabulary.
        rows: the values of each column.
        action: among `ACTIONS`.
        cpu: seconds of the processor, those of the system left out.
        peak: MB beyond what the process held before.
    """

    form: str
    table: int
    rows: int
    action: str
    cpu: float
    peak: float


def slope(points: Collection[tuple[float, float]]) -> float | None:
    """The slope of the line through the logarithms of points, by least squares; None of fewer than two.

    Example:
        >>> slope([(1, 1.0), (2, 4.0), (4, 16.0)])
        2.0
    """
    if len(points) < 2:
        return None
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def exponent_of(sizes: Sequence[int], costs: Sequence[float], noise: float) -> float | None:
    """The slope of log cost over log size, both beyond the first; None within the noise.

    Example:
        >>> exponent_of((1, 2, 3, 5), (1.0, 2.0, 5.0, 17.0), 0.5)
        2.0
    """
    if costs[-1] - costs[0] < noise:
        return None
    beyond = [(size - sizes[0], cost - costs[0]) for size, cost in zip(sizes, costs, strict=True)]
    return slope([(size, cost) for size, cost in beyond[1:] if cost > 0])


class Costs:
    """The costs of a case, and how they grow.

    Args:
        measured: all of one case.
    """

    def __init__(self, measured: Sequence[Measured]) -> None:
        self._of = {(m.form, m.table, m.action, m.rows): m for m in measured}
        self.forms = list(dict.fromkeys(m.form for m in measured))
        self.actions = [a for a in ACTIONS if any(m.action == a for m in measured)]
        self.rows = sorted({m.rows for m in measured})
        self.tables = sorted({m.table for m in measured})

    def cost(
        self, form: str, table: int, action: str, kind: str, rows: int, first: int | None = None
    ) -> float:
        """The cost of the rows beyond the start-up, which is that of the fewest rows.

        A quarter of the start-up, to which that of a table belongs, is within its own noise.
        """
        few = self.rows[0] if first is None else first
        made, base = (getattr(self._of[form, table, action, n], kind) for n in (rows, few))
        return float(made - base) if made > 1.25 * base else 0.0

    @property
    def usual(self) -> list[int]:
        """The counts of rows without a quarter and four times the most, which came later."""
        return self.rows if len(self.rows) < 5 else [*self.rows[:-3], self.rows[-2]]

    def exponent(self, form: str, table: int, action: str, kind: str) -> float | None:
        """The slope of log cost over log rows, by least squares; None within the noise.

        Where it was taken again over more rows, it is the smaller one: what grows does so in both.
        """
        counts = [self.usual] if self.usual == self.rows else [self.usual, self.rows[-3:]]
        slopes = [self._slope(form, table, action, kind, each) for each in counts]
        known = [slope for slope in slopes if slope is not None]
        return min(known) if len(known) == len(counts) else None

    def _slope(
        self, form: str, table: int, action: str, kind: str, counts: Sequence[int]
    ) -> float | None:
        first, *more = counts
        points = [
            (rows - first, cost)
            for rows in more
            if (cost := self.cost(form, table, action, kind, rows, first)) > NOISE[kind]
        ]
        return slope(points)

    def of_lists(self, table: int, action: str, kind: str) -> float | None:
        """The cost of a list column over that of its values flat; None within the noise.

        Where it was taken again over more rows, it is the smaller one.
        """
        if len(self.forms) < 2 or action not in IN_MEMORY:
            return None
        ratios = []
        for rows in {self.usual[-1], self.rows[-1]}:
            flat, lists = (self.cost(form, table, action, kind, rows) for form in self.forms)
            noise = NOISE[kind]
            if kind == "cpu":
                noise = max(noise, FLATTENED * rows)
            elif action == "fit":
                noise = MOST_IN_HAND
            if lists <= noise:
                return None
            ratios.append((lists - noise) / max(flat, NOISE[kind]))
        return min(ratios)

    def of_table(self, form: str, action: str, kind: str) -> float | None:
        """The slope of the log cost of the rows over the log of the entries; None within the noise.

        It is the least between two sizes: work for each row and entry grows at every step, and what
        a larger table costs by itself, or beyond some size, at one of them.
        """
        costs = [self.cost(form, t, action, kind, self.usual[-1]) for t in self.tables]
        if len(costs) < 2 or costs[-1] < 2 * NOISE[kind]:
            return None
        points = [
            (math.log(table), math.log(max(cost, NOISE[kind])))
            for table, cost in zip(self.tables, costs, strict=True)
        ]
        return min((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points))

    def costs_too_much(self) -> bool:
        """Whether an exponent in rows, or a list beside its values, is above its limit."""
        return any(
            made > LIMITS[which]
            for which in ("exponent", "of_lists")
            for form in self.forms
            for *_, made in _growths(self, form, which)
        )


# The three kinds of growth.
TITLES = {
    "exponent": "exponent in rows",
    "of_lists": "lists to flat",
    "of_table": "exponent in entries",
}


def print_summary(measured: Mapping[str, Costs]) -> None:
    """Print the worst of each operator's and verb's cases, forms and actions.

    A line for each of which the time is above the noise over three counts of rows, and one for all
    others.
    """
    lines: dict[str, list[Costs]] = {}
    for title, costs in measured.items():
        lines.setdefault(title.split()[0], []).append(costs)
    others = [name for name, cases in lines.items() if _cells(cases)[0].startswith("-")]
    rows = {name: cases for name, cases in lines.items() if name not in others}
    rows[f"{len(others)} others"] = [costs for name in others for costs in lines[name]]
    titles = [f"{TITLES[which]}: time / memory" for which in LIMITS]  # cells such as "1.03 / 0.99"
    show(
        "The worst of each operator and verb",
        (
            {"": name} | dict(zip(titles, _cells(cases), strict=True))
            for name, cases in rows.items()
        ),
    )


def _cells(cases: Sequence[Costs]) -> list[str]:
    return [
        _worst(growth for c in cases for form in c.forms for growth in _growths(c, form, which))
        for which in LIMITS
    ]


Growth = tuple[str, str, int, str, float]


def _growths(costs: Costs, form: str, which: str) -> Iterator[Growth]:
    """Each figure of one kind that is above the noise: the action, the cost, the table and itself."""
    for action in costs.actions:
        for kind in NOISE:
            for table in costs.tables:
                if which == "exponent":
                    made = costs.exponent(form, table, action, kind)
                elif which == "of_lists":
                    made = costs.of_lists(table, action, kind) if form == "list" else None
                else:
                    made = costs.of_table(form, action, kind) if table == costs.tables[0] else None
                if made is not None:
                    yield which, action, table, kind, made


def _worst(growths: Iterable[Growth]) -> str:
    """The largest figure of time and of memory."""
    found = [*growths]
    cells = []
    for kind in NOISE:
        made = [growth[-1] for growth in found if growth[3] == kind]
        cells.append(f"{max(made):.2f}" if made else "-")
    return " / ".join(cells)


LIMITS = {"exponent": MOST_EXPONENT, "of_lists": MOST_OF_LISTS, "of_table": MOST_OF_TABLE}


def flags_of(costs: Costs, title: str) -> Iterator[str]:
    """A sentence for each cost of a case that grows faster than it should."""
    for form in costs.forms:
        for which, limit in LIMITS.items():
            for _, action, table, kind, made in _growths(costs, form, which):
                if made > limit:
                    yield (
                        f"{title}, {form}, {action}, {UNITS[kind]}: {TITLES[which]} {made:.2f} "
                        f"(at most {limit}; {table:,} entries)"
                    )
