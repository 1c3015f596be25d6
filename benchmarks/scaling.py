"""Measure how the cost of each operator and verb grows with its data, in time and in peak memory.

    python -m benchmarks.scaling [--only Categorify lookup] [--rows 10000 100000 1000000]

Each operator and each verb runs in a process of its own, under a limit of memory, over
columns of so many values: one to a row, and where lists are taken ten to a row, the same values. It
is fitted, and transforms a frame (`collect`), a file streamed (`streaming`) and a file to files
(`parquet`); the numpy interpreter answers the same rows (`numpy`). Time is the processor's in the
process itself, so that other work on the machine counts little; the system's, which gives the pages
of memory, differs tenfold between runs on a virtual machine. Memory is the peak beyond what the
process held before.

The exponent is the slope of log cost over log rows, after the cost of the fewest rows, which is the
start-up, is taken off; one that is too large is taken again over four times the rows. Three things
are flagged, and make the command fail: an exponent above 1.15; a list column that costs more than
1.5 times its values as a flat column, beside a copy of these; and a cost of rows that grows with the
vocabulary. What is below the noise of the machine is flagged in no case.
"""

from __future__ import annotations

import ctypes
import gc
import math
import resource
import shutil
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import in_child, memory_gb, options, peak_memory, show
from benchmarks.scaling_cases import OPERATORS, VERB_CASES, Case
from workflow import Workflow
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column

ROWS, TABLES = (10_000, 100_000, 1_000_000), (1_000, 30_000, 1_000_000)
# The vocabulary of a case that has none to choose.
ONE_TABLE = 1_000
CASES = {case.title: case for case in (*OPERATORS, *VERB_CASES)}
# Freed memory goes back at once, so that each peak is that of what is measured.
FREED = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0", "POLARS_MAX_THREADS": "2"}
ROWS_PER_GROUP = 100_000
# Seconds of the processor after which nothing is measured again.
MOST_REPEATED = 0.4
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
    every: dict[str, list[tuple[Growth, float]]] = defaultdict(list)
    for title, found in cases.items():
        every[title.split()[0]] += found.items()
    timed = {name for name, found in every.items() if _worst(found, EXPONENT, "cpu") is not None}
    rest = [name for name in every if name not in timed]
    every[f"{len(rest)} others"] = [growth for name in rest for growth in every.pop(name)]

    def cell(found: Iterable[tuple[Growth, float]], which: str) -> str:  # such as "1.03 / 0.99"
        worst = (_worst(found, which, kind) for kind in NOISE)
        return " / ".join("-" if made is None else f"{made:.2f}" for made in worst)

    lines = (
        {"": name} | {f"{which}: time / memory": cell(found, which) for which in LIMITS}
        for name, found in every.items()
    )
    show("The worst of each operator and verb", lines)


def _worst(found: Iterable[tuple[Growth, float]], which: str, kind: str) -> float | None:
    return max((made for g, made in found if (g.which, g.kind) == (which, kind)), default=None)


def flags_of(found: Mapping[Growth, float], title: str) -> Iterator[str]:
    """A sentence for each cost of a case that grows faster than it should."""
    for growth, made in found.items():
        if made > LIMITS[growth.which]:
            yield (
                f"{title}, {growth.form}, {growth.action}, {UNITS[growth.kind]}: {growth.which} "
                f"{made:.2f} (at most {LIMITS[growth.which]}; {growth.table:,} entries)"
            )


def _measure(case: Case, parsed: Namespace) -> dict[Growth, float]:
    """Measure a case, and once more over more rows where a cost is too high.

    What leaves the caches as its rows grow costs more for a row, until it has left them, and other
    work on the machine may take them away. So an exponent that is too large is taken again over more
    rows, where a true one stays, and so is a list that costs too much.
    """
    found = growths(_in_a_process(case, parsed.gigabytes, parsed.rows))
    if costs_too_much(found):
        rows = [parsed.rows[-1] * 4**power // 4 for power in range(3)]
        found = once_more(found, growths(_in_a_process(case, parsed.gigabytes, rows)))
    return found


def _in_a_process(case: Case, gigabytes: float, rows: Sequence[int]) -> list[Measured]:
    start = time.perf_counter()
    made = in_child(measure_here, case.title, gigabytes, rows, **FREED)
    print(f"{case.title}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return made


def measure_here(title: str, gigabytes: float, rows: Sequence[int]) -> list[Measured]:
    """Measure a case in this process, which may take so much memory."""
    limit = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    case, found = CASES[title], []
    for table in TABLES if case.table else [ONE_TABLE]:
        for form in case.forms:
            with tempfile.TemporaryDirectory() as scratch:
                actions = _actions(case, form, table, Path(scratch))
                for _, work in actions(100):  # what is imported and allocated once
                    _cost(work)
                found += [
                    Measured(form, table, count, action, *_cost(work))
                    for count in rows
                    for action, work in actions(count)
                ]
    return found


def _actions(
    case: Case, form: str, table: int, scratch: Path
) -> Callable[[int], Iterator[tuple[str, Callable[[], Any]]]]:
    """The actions of one form of a case over one vocabulary, by the values of a column."""
    graph = case.make(table)
    fitted = Workflow(graph).fit(case.every(form, table))
    file, folder = scratch / "data.parquet", scratch / "out"

    def to_parquet() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        fitted.transform_to_parquet(file, folder)

    def actions(rows: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        data = case.rows(form, rows, table)
        data.write_parquet(file, row_group_size=ROWS_PER_GROUP)
        yield "fit", lambda: Workflow(graph).fit(data)
        yield "collect", lambda: fitted.transform(data).collect()
        yield "streaming", lambda: fitted.transform(file).collect(engine="streaming")
        yield "parquet", to_parquet
        if case.row_by_row:
            program = fitted.program
            columns = {name: to_column(data[name]) for name in program.inputs}
            run = NumpyInterpreter(fold_tables(program))
            yield "numpy", lambda: run(columns)

    return actions


def _cost(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the processor, and MB: the least of up to three times."""
    costs: list[tuple[float, float]] = []
    while len(costs) < 3 and sum(cpu for cpu, _ in costs) < MOST_REPEATED:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = memory_gb("VmRSS")
        with peak_memory() as peak:
            start = _user_time()
            work()
            spent = _user_time() - start
        costs.append((spent, (peak[0] - before) * 1024))
    cpu, most = (min(values) for values in zip(*costs, strict=True))
    return cpu, max(most, 0.0)


def _user_time() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, print a table, and fail where a cost grows faster than its data."""
    parser = options(__doc__, gigabytes=8.0, rows=ROWS)
    parser.add_argument("--only", nargs="+", default=(), help="names of operators and verbs")
    parsed = parser.parse_args(arguments)
    parsed.rows = sorted(parsed.rows)
    chosen = [
        case
        for case in CASES.values()
        if not parsed.only or {case.name, case.title} & set(parsed.only)
    ]
    if not chosen:
        sys.exit(f"No operator and no verb is named so: {', '.join(parsed.only)}.")
    measured, failed = {}, []
    for case in chosen:
        try:
            measured[case.title] = _measure(case, parsed)
        except Exception as error:  # noqa: BLE001 - of any kind, and the others are measured
            failed.append(f"{case.title} ended with {error!r}")
    if failed:  # what is left would look like a result
        sys.exit("\n\n".join(failed))
    print_summary(measured)
    flags = [flag for title, found in measured.items() for flag in flags_of(found, title)]
    if flags:
        sys.exit(f"{len(flags)} costs grow faster than they should:\n" + "\n".join(flags))


if __name__ == "__main__":
    main()
