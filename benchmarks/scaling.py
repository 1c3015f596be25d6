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
import resource
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import in_child, memory_gb, options, peak_memory
from benchmarks.scaling_cases import OPERATORS, VERB_CASES, Case
from benchmarks.scaling_costs import (
    Growth,
    Measured,
    costs_too_much,
    flags_of,
    growths,
    once_more,
    print_summary,
)
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, print a table, and fail where a cost grows faster than its data."""
    parser = options(__doc__, gigabytes=8.0)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="values of a column")
    parser.add_argument("--only", nargs="+", default=(), help="operators, verbs, or names of these")
    parsed = parser.parse_args(arguments)
    parsed.rows = sorted(parsed.rows)
    chosen = [
        case
        for case in CASES.values()
        if not parsed.only or {case.name, case.title, _group(case)} & set(parsed.only)
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


def _group(case: Case) -> str:
    return "verbs" if case in VERB_CASES else "operators"


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


if __name__ == "__main__":
    main()
