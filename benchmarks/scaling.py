"""Measure how the cost of each operator and verb grows with its data, in time and in peak memory.

    python -m benchmarks.scaling [--quick] [--only Categorify lookup] [--rows 10000 100000 1000000]
        [--keep FILE] [--summary]

With `--keep` an interrupted run resumes at the first case that the file does not hold.

Each operator and each verb runs in a process of its own, under a limit of memory and of time, over
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

import argparse
import ctypes
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.scaling_cases import OPERATORS, VERB_CASES, Case
from benchmarks.scaling_costs import Costs, Measured, print_summary, print_table

ROWS, TABLES = (10_000, 100_000, 1_000_000), (1_000, 30_000, 1_000_000)
# The vocabulary of a case that has none to choose.
ONE_TABLE = 1_000
# Freed memory goes back at once, so that each peak is that of what is measured.
FREED = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0", "POLARS_MAX_THREADS": "2"}
ROWS_PER_GROUP = 100_000
# Seconds of the processor after which nothing is measured again.
MOST_REPEATED = 0.4


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
    measured, failed = _kept(options.keep), []
    for case in chosen:
        try:
            _measure(case, options, measured.setdefault(case.title, []))
        except _CaseError as error:
            failed.append(str(error))
    if failed:  # what is left would look like a result
        sys.exit("\n\n".join(failed))
    if options.summary:
        print_summary(measured)
    flags = print_table(measured)
    if flags:
        sys.exit(f"{len(flags)} costs grow faster than they should:\n" + "\n".join(flags))


def _measure(case: Case, options: argparse.Namespace, known: list[Measured]) -> None:
    """Add to the figures of a case those that are missing.

    What leaves the caches as its rows grow costs more for a row, until it has left them, and other
    work on the machine may take them away. So an exponent that is too large is taken again over more
    rows, where a true one stays, and so is a list that costs too much.
    """
    if not known:
        known += _in_a_process(case, options, options.rows)
    costs, most = Costs(known), options.rows[-1]
    if costs.costs_too_much() and costs.rows[-1] == most:
        known += _in_a_process(case, options, [most // 4, most * 4])


def _kept(file: Path | None) -> dict[str, list[Measured]]:
    """Read the cases that an earlier, interrupted run has measured."""
    measured: dict[str, list[Measured]] = {}
    if file is not None and file.exists():
        for line in file.read_text().splitlines():
            figures = json.loads(line)
            measured.setdefault(figures.pop("case"), []).append(Measured(**figures))
    return measured


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
    parser.add_argument(
        "--keep", type=Path, help="keep figures in this file, and take those of cases already there"
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="first a line for each operator and verb, of its worst",
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.tables = (1_000, 10_000, 100_000), (1_000, 30_000)
    options.rows, options.tables = sorted(options.rows), sorted(options.tables)
    return options


class _CaseError(Exception):
    """A case that crashed, or took more memory or time than it may."""


def _in_a_process(case: Case, options: argparse.Namespace, rows: Sequence[int]) -> list[Measured]:
    """Measure a case in a process of its own, and keep the figures."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--case", case.title]
    command += ["--rows", *map(str, rows), "--tables", *map(str, options.tables)]
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
    made = [Measured(**json.loads(line)) for line in done.stdout.splitlines()]
    if options.keep is not None:
        with options.keep.open("a") as file:
            file.writelines(json.dumps({"case": case.title} | asdict(m)) + "\n" for m in made)
    return made


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
        """Measure each action over so many values."""
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
        from workflow.expressions.fold_tables import fold_tables  # noqa: PLC0415
        from workflow.expressions.numpy.interpreter import NumpyInterpreter  # noqa: PLC0415
        from workflow.expressions.polars.series import to_column  # noqa: PLC0415

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
        wall, cpu = time.perf_counter(), _user_time()
        work()
        spent = _user_time() - cpu, time.perf_counter() - wall
        costs.append((*spent, _status("VmHWM") - before))
    cpu, wall, peak = (min(values) for values in zip(*costs, strict=True))
    return cpu, wall, max(peak, 0.0)


def _user_time() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _status(name: str) -> float:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
