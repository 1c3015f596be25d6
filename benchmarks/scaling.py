"""What every operator and every verb costs as its data grows: time, peak memory, and the exponent.

    python -m benchmarks.scaling [--quick] [--only Categorify lookup] [--rows 10000 100000 1000000]

Each operator and each verb runs in a process of its own, under a limit of memory and of time, over
columns of so many values: one to a row, and where lists are taken ten to a row, the same values. It
is fitted, and transforms a frame (`collect`), a file streamed (`streaming`) and a file to files
(`parquet`); the numpy interpreter answers the same rows (`numpy`). Time is the processor's, user and
system, so that other work on the machine counts little; memory is the peak beyond what the process
held before.

The exponent is the slope of log cost over log rows, after the cost of the fewest rows, which is the
start-up, is taken off. Three things are flagged, and make the command fail: an exponent above 1.15; a list column that
costs more than 1.5 times its values as a flat column; and a cost of rows that grows with the
vocabulary by more than its slower memory explains. What is below the noise of the machine is flagged
in no case.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.scaling_cases import OPERATORS, VERB_CASES, Case

ROWS, TABLES = (10_000, 100_000, 1_000_000), (1_000, 30_000, 1_000_000)
# The vocabulary of a case that has none to choose.
ONE_TABLE = 1_000
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
ACTIONS = ("fit", "collect", "streaming", "parquet", "numpy")
# Freed memory goes back at once, so that each peak is that of what is measured.
FREED = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0", "POLARS_MAX_THREADS": "2"}
ROWS_PER_GROUP = 100_000
# Seconds of the processor after which nothing is measured again.
MOST_REPEATED = 0.15
UNITS = {"cpu": "time", "peak": "memory"}


@dataclass(frozen=True)
class Measured:
    """What one action has cost.

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


def main() -> None:
    """Measure the cases, print a table, and fail where a cost grows faster than its data."""
    options = _options()
    if options.case:
        _measure_here(options)
        return
    chosen = [
        case
        for case in (*OPERATORS, *VERB_CASES)
        if not options.only or {case.name, case.title, _group(case)} & set(options.only)
    ]
    if not chosen:
        sys.exit(f"No operator and no verb is named so: {', '.join(options.only)}.")
    measured, failed = {}, []
    for case in chosen:
        try:
            measured[case.title] = _in_a_process(case, options)
        except _CaseError as error:
            failed.append(str(error))
    if failed:  # what is left would look like a result
        sys.exit("\n\n".join(failed))
    flags = _print_table(measured)
    if flags:
        sys.exit(f"{len(flags)} costs grow faster than they should:\n" + "\n".join(flags))


def _group(case: Case) -> str:
    return "verbs" if case in VERB_CASES else "operators"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="values of a column")
    parser.add_argument("--tables", type=int, nargs="+", default=TABLES, help="entries of tables")
    parser.add_argument("--only", nargs="+", default=(), help="operators, verbs, or names of these")
    parser.add_argument(
        "--quick", action="store_true", help="up to 100,000 rows, and smaller tables"
    )
    parser.add_argument("--gigabytes", type=float, default=8, help="a process may take so much")
    parser.add_argument("--seconds", type=float, default=300, help="and so long")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.tables = (1_000, 10_000, 100_000), (1_000, 30_000)
    options.rows, options.tables = sorted(options.rows), sorted(options.tables)
    return options


class _CaseError(Exception):
    """A case that crashed, or took more memory or time than it may."""


def _in_a_process(case: Case, options: argparse.Namespace) -> list[Measured]:
    """What a case costs, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--case", case.title]
    command += ["--rows", *map(str, options.rows), "--tables", *map(str, options.tables)]
    command += ["--gigabytes", str(options.gigabytes)]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=options.seconds,
            env=os.environ | FREED,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        raise _CaseError(
            f"{case.title} took longer than {options.seconds:.0f} s, after:\n{said[-400:]}"
        ) from late
    if done.returncode:
        said = f"{done.stdout[-400:]}\n{done.stderr[-2000:]}"
        raise _CaseError(f"{case.title} ended with {done.returncode}, after:\n{said}")
    print(f"{case.title}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return [Measured(**json.loads(line)) for line in done.stdout.splitlines()]


def _measure_here(options: argparse.Namespace) -> None:
    """Measure a case in this process, a line of JSON for each figure."""
    limit = int(options.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    case = next(case for case in (*OPERATORS, *VERB_CASES) if case.title == options.case)
    for table in options.tables if case.table else [ONE_TABLE]:
        for form in case.forms:
            with tempfile.TemporaryDirectory() as scratch:
                run = _Runs(case, form, table, Path(scratch))
                run.measure(100)  # what is imported and allocated once
                for rows in options.rows:
                    for measured in run.measure(rows):
                        print(json.dumps(asdict(measured)), flush=True)


class _Runs:
    """The actions of one form of a case, over one vocabulary."""

    def __init__(self, case: Case, form: str, table: int, scratch: Path) -> None:
        from workflow import Workflow  # noqa: PLC0415 - after the limit of memory

        self._case, self._form, self._table, self._scratch = case, form, table, scratch
        self._graph = case.make(table)
        self._fitted = Workflow(self._graph).fit(case.every(form, table))

    def measure(self, rows: int) -> list[Measured]:
        """What each action costs over so many values."""
        return [
            Measured(self._form, self._table, rows, action, *_cost(work))
            for action, work in self._actions(rows)
        ]

    def _actions(self, rows: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        from workflow import Workflow  # noqa: PLC0415

        case, fitted = self._case, self._fitted
        data = case.rows(self._form, rows, self._table)
        file, folder = self._scratch / "data.parquet", self._scratch / "out"
        data.write_parquet(file, row_group_size=ROWS_PER_GROUP)

        def to_parquet() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            fitted.transform_to_parquet(file, folder)

        yield "fit", lambda: Workflow(self._graph).fit(data)
        yield "collect", lambda: fitted.transform(data).collect()
        yield "streaming", lambda: fitted.transform(file).collect(engine="streaming")
        yield "parquet", to_parquet
        if case.row_by_row:
            yield "numpy", self._numpy(data)

    def _numpy(self, data: Any) -> Callable[[], Any]:
        from workflow.expressions.fold import fold_tables  # noqa: PLC0415
        from workflow.expressions.numpy import NumpyInterpreter  # noqa: PLC0415
        from workflow.expressions.series import to_column  # noqa: PLC0415

        program = self._fitted.program
        columns = {name: to_column(data[name]) for name in program.inputs}
        run = NumpyInterpreter(fold_tables(program))
        return lambda: run(columns)


def _cost(work: Callable[[], Any]) -> tuple[float, float, float]:
    """Seconds of the processor, seconds and MB: the least of up to three times."""
    costs: list[tuple[float, float, float]] = []
    while len(costs) < 3 and sum(cpu for cpu, *_ in costs) < MOST_REPEATED:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        spent = time.process_time() - cpu, time.perf_counter() - wall
        costs.append((*spent, _status("VmHWM") - before))
    cpu, wall, peak = (min(values) for values in zip(*costs, strict=True))
    return cpu, wall, max(peak, 0.0)


def _status(name: str) -> float:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024


class Costs:
    """What a case has cost, and how it grows.

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
        """What the rows cost beyond the start-up."""
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
        """How many times the flat column a list column costs; None within the noise."""
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


def _print_table(measured: dict[str, list[Measured]]) -> list[str]:
    """Print what each case costs, and return what is flagged."""
    print("| | form | " + " | ".join(ACTIONS) + " | exponent | list / flat | of the table | |")
    print("|---" * (len(ACTIONS) + 6) + "|")
    flags = []
    for title, figures in measured.items():
        costs = Costs(figures)
        for form in costs.forms:
            cells = [_cell(costs, form, action) for action in ACTIONS]
            own = [*flags_of(costs, title, form)]
            flags += own
            growth = (_worst(costs, form, which) for which in ("exponent", "of_lists", "of_table"))
            print(f"| {title} | {form} | {' | '.join([*cells, *growth])} | {'**!**' * bool(own)} |")
    return flags


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


def _worst(costs: Costs, form: str, which: str) -> str:
    """The largest figure of time and of memory."""
    cells = []
    for kind in NOISE:
        made = [growth[-1] for growth in _growths(costs, form, which) if growth[3] == kind]
        cells.append(f"{max(made):.2f}" if made else "-")
    return " / ".join(cells)


LIMITS = {"exponent": MOST_EXPONENT, "of_lists": MOST_OF_LISTS, "of_table": MOST_OF_TABLE}
SAID = {
    "exponent": "exponent in rows",
    "of_lists": "list / flat",
    "of_table": "exponent in entries",
}


def flags_of(costs: Costs, title: str, form: str) -> Iterator[str]:
    """What grows faster in a form of a case than it should, each as a sentence."""
    for which, limit in LIMITS.items():
        for _, action, table, kind, made in _growths(costs, form, which):
            if made > limit:
                yield (
                    f"{title}, {form}, {action}, {UNITS[kind]}: {SAID[which]} {made:.2f} "
                    f"(at most {limit}; {table:,} entries)"
                )


if __name__ == "__main__":
    main()
