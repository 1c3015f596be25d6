"""Growth of measured costs: exponents, lists beside flat columns, and tables of these."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
# From a thousand entries to a million a random access leaves the caches and costs ten times as much:
# an exponent of a third. Work for each row and entry would make it one.
MOST_OF_TABLE = 0.34
UNITS = {"cpu": "time", "peak": "memory"}


@dataclass(frozen=True)
class Measured:
    """The cost of one action.

    Attributes:
        form: "scalar" or "list".
        table: the entries of the vocabulary.
        rows: the values of each column.
        action: among `ACTIONS`.
        cpu: seconds of the processor, user and system.
        wall: seconds.
        peak: MB beyond what the process held before.
    """

    form: str
    table: int
    rows: int
    action: str
    cpu: float
    wall: float
    peak: float


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

    def cost(self, form: str, table: int, action: str, kind: str, rows: int) -> float:
        """The cost of the rows beyond the start-up."""
        made, base = (getattr(self._of[form, table, action, n], kind) for n in (rows, self.rows[0]))
        return float(made - base)

    def exponent(self, form: str, table: int, action: str, kind: str) -> float | None:
        """The slope of log cost over log rows, by least squares; None within the noise."""
        points = [
            (math.log(rows - self.rows[0]), math.log(cost))
            for rows in self.rows[1:]
            if (cost := self.cost(form, table, action, kind, rows)) > NOISE[kind]
        ]
        if len(points) < 2:
            return None
        return statistics.linear_regression(*zip(*points, strict=True)).slope

    def of_lists(self, table: int, action: str, kind: str) -> float | None:
        """The cost of a list column over that of its values flat; None within the noise."""
        if len(self.forms) < 2 or action not in IN_MEMORY:
            return None
        flat, lists = (self.cost(f, table, action, kind, self.rows[-1]) for f in self.forms)
        noise = MOST_IN_HAND if (action, kind) == ("fit", "peak") else NOISE[kind]
        return (lists - noise) / max(flat, NOISE[kind]) if lists > noise else None

    def of_table(self, form: str, action: str, kind: str) -> float | None:
        """The slope of the log cost of the rows over the log of the entries; None within the noise."""
        least, most = self.tables[0], self.tables[-1]
        if least == most:
            return None
        small, large = (self.cost(form, t, action, kind, self.rows[-1]) for t in (least, most))
        if large < 2 * NOISE[kind]:
            return None
        return math.log(large / max(small, NOISE[kind])) / math.log(most / least)


def print_table(measured: dict[str, list[Measured]]) -> list[str]:
    """Print the costs of each case, and return the flags."""
    print("| | form | " + " | ".join(ACTIONS) + " | exponent | list / flat | of the table | |")
    print("|---" * (len(ACTIONS) + 6) + "|")
    flags = []
    for title, figures in measured.items():
        costs = Costs(figures)
        for form in costs.forms:
            cells = [_cell(costs, form, action) for action in ACTIONS]
            own = [*flags_of(costs, title, form)]
            flags += own
            growth = (_worst(_growths(costs, form, which)) for which in LIMITS)
            print(f"| {title} | {form} | {' | '.join([*cells, *growth])} | {'**!**' * bool(own)} |")
    return flags


def print_summary(measured: Mapping[str, Sequence[Measured]]) -> None:
    """Print a line for each operator and verb: the worst of its cases, forms and actions."""
    by_name: dict[str, list[Costs]] = {}
    for title, figures in measured.items():
        by_name.setdefault(title.split()[0], []).append(Costs(figures))
    print("| | exponent in rows | list / flat | exponent in entries |\n|---|---|---|---|")
    for name, cases in by_name.items():
        cells = [
            _worst(growth for c in cases for form in c.forms for growth in _growths(c, form, which))
            for which in LIMITS
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def _cell(costs: Costs, form: str, action: str) -> str:
    if action not in costs.actions:
        return ""
    rows, table = costs.rows[-1], costs.tables[-1]
    cpu, peak = (max(0.0, costs.cost(form, table, action, k, rows)) for k in NOISE)
    return f"{cpu:.2f} s {peak:.0f} MB"


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
SAID = {
    "exponent": "exponent in rows",
    "of_lists": "list / flat",
    "of_table": "exponent in entries",
}


def flags_of(costs: Costs, title: str, form: str) -> Iterator[str]:
    """A sentence for each cost of a form that grows faster than it should."""
    for which, limit in LIMITS.items():
        for _, action, table, kind, made in _growths(costs, form, which):
            if made > limit:
                yield (
                    f"{title}, {form}, {action}, {UNITS[kind]}: {SAID[which]} {made:.2f} "
                    f"(at most {limit}; {table:,} entries)"
                )
