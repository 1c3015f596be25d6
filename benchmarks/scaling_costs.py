"""Growth of measured costs: exponents, lists beside flat columns, and a table of these."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from benchmarks.measure import show

# In seconds and MB: a difference below is not told from the noise of a shared machine.
NOISE = {"cpu": 0.02, "peak": 4.0}
UNITS = {"cpu": "time", "peak": "memory"}
EXPONENT, OF_LISTS, OF_TABLE = "exponent in rows", "lists to flat", "exponent in entries"
MOST_EXPONENT = 1.15
# Work for each row and entry would make the exponent in entries one. A random access that leaves the
# caches costs ten times as much, and rows of more groups are put together in more steps.
LIMITS = {EXPONENT: MOST_EXPONENT, OF_LISTS: 1.5, OF_TABLE: 0.5}
# Streamed, a few parts of 100,000 rows are in hand, however large the data is: of lists these hold
# ten times the values.
MOST_IN_HAND = 32.0
# In these actions the data is in memory; what files cost is also their format's, which has lists by
# two levels of lengths.
IN_MEMORY = ("fit", "collect", "numpy")
# Seconds for each value: those of lists are copied once, to be flat.
FLATTENED = 5e-8

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Measured:
    """The cost of one action.

    Attributes:
        form: "scalar" or "list".
        table: the entries of the vocabulary.
        rows: the values of each column.
        action: such as "fit".
        cpu: seconds of the processor, those of the system left out.
        peak: MB beyond what the process held before.
    """

    form: str
    table: int
    rows: int
    action: str
    cpu: float
    peak: float


class Growth(NamedTuple):
    """A figure of a case: one of `LIMITS`, of a form, an action, a cost and a table."""

    which: str
    form: str
    action: str
    kind: str
    table: int


def slope(points: Points) -> float | None:
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


def growths(measured: Iterable[Measured]) -> dict[Growth, float]:
    """The growth of a case's costs, without what is within the noise.

    The cost of the fewest rows is the start-up, and taken off. A quarter of it, to which that of a
    table belongs, is within its own noise.
    """
    curves: dict[tuple[str, str, str, int], Points] = defaultdict(list)
    for each in sorted(measured, key=lambda one: one.rows):
        for kind in NOISE:
            key = each.form, each.action, kind, each.table
            curves[key].append((each.rows, getattr(each, kind)))
    found: dict[Growth, float | None] = {}
    most: dict[tuple[str, str, str], Points] = defaultdict(list)
    for (form, action, kind, table), ((few, start_up), *more) in curves.items():
        beyond = [(n - few, cost - start_up if cost > 1.25 * start_up else 0.0) for n, cost in more]
        points = [(n, cost) for n, cost in beyond if cost > NOISE[kind]]
        found[Growth(EXPONENT, form, action, kind, table)] = slope(points)
        most[form, action, kind].append((table, beyond[-1][1]))
        flat = dict(most.get(("scalar", action, kind), ()))
        if form == "list" and table in flat and action in IN_MEMORY:
            noise = max(NOISE[kind], FLATTENED * more[-1][0] if kind == "cpu" else 0)
            if kind == "peak" and action == "fit":
                noise = MOST_IN_HAND
            excess = beyond[-1][1] - noise
            ratio = excess / max(flat[table], NOISE[kind]) if excess > 0 else None
            found[Growth(OF_LISTS, form, action, kind, table)] = ratio
    for (form, action, kind), costs in most.items():
        smallest = Growth(OF_TABLE, form, action, kind, int(costs[0][0]))
        found[smallest] = _of_table(sorted(costs), NOISE[kind])
    return {growth: value for growth, value in found.items() if value is not None}


def _of_table(costs: Points, noise: float) -> float | None:
    """The slope of the log cost of the rows over the log of the entries; None within the noise.

    It is the least between two sizes: work for each row and entry grows at every step, and what
    a larger table costs by itself, or beyond some size, at one of them.
    """
    if len(costs) < 2 or costs[-1][1] < 2 * noise:
        return None
    pairs = pairwise((table, max(cost, noise)) for table, cost in costs)
    return min(math.log(d / b) / math.log(c / a) for (a, b), (c, d) in pairs)


def costs_too_much(found: Mapping[Growth, float]) -> bool:
    """Whether an exponent in rows, or a list beside its values, is above its limit."""
    return any(made > LIMITS[g.which] for g, made in found.items() if g.which != OF_TABLE)


def once_more(first: Mapping[Growth, float], more: Mapping[Growth, float]) -> dict[Growth, float]:
    """Two measurements together: what really grows does so in both; tables are in the first."""
    return {
        growth: made if growth.which == OF_TABLE else min(made, more[growth])
        for growth, made in first.items()
        if growth.which == OF_TABLE or growth in more
    }


def print_summary(cases: Mapping[str, Mapping[Growth, float]]) -> None:
    """Print the worst of each operator's and verb's cases, forms and actions.

    A line for each of which the time is above the noise over three counts of rows, and one for all
    others.
    """
    worst: dict[str, dict[tuple[str, str], float]] = {}
    for title, found in cases.items():
        own = worst.setdefault(title.split()[0], {})
        for growth, made in found.items():
            key = growth.which, growth.kind
            own[key] = max(made, own.get(key, -math.inf))
    rest = [name for name, own in worst.items() if (EXPONENT, "cpu") not in own]
    others: dict[tuple[str, str], float] = {}
    for name in rest:
        own = worst.pop(name)
        others |= {key: max(made, others.get(key, -math.inf)) for key, made in own.items()}
    worst[f"{len(rest)} others"] = others

    def row(name: str, own: Mapping[tuple[str, str], float]) -> dict[str, str]:
        cells = {"": name}
        for which in LIMITS:  # such as "1.03 / 0.99"
            made = [own.get((which, kind)) for kind in NOISE]
            cells[f"{which}: time / memory"] = " / ".join(
                "-" if m is None else f"{m:.2f}" for m in made
            )
        return cells

    show("The worst of each operator and verb", (row(*each) for each in worst.items()))


def flags_of(found: Mapping[Growth, float], title: str) -> Iterator[str]:
    """A sentence for each cost of a case that grows faster than it should."""
    for growth, made in found.items():
        if made > LIMITS[growth.which]:
            yield (
                f"{title}, {growth.form}, {growth.action}, {UNITS[growth.kind]}: {growth.which} "
                f"{made:.2f} (at most {LIMITS[growth.which]}; {growth.table:,} entries)"
            )
