"""What a request costs in the numpy interpreter, which serves inside Triton's python backend.

    python -m benchmarks.numpy_interpreter
    python -m benchmarks.numpy_interpreter --rows 100000

A workflow of the Criteo data set's shape, 39 columns with vocabularies of up to two million ids, is
fitted, and requests of several sizes are computed in this process. The second column does each
step by itself, as it was before equal steps were computed together.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from benchmarks.criteo import make_rows, make_workflow
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column
from workflow.schema.column import Column

BATCHES = (1, 8, 64, 256, 1024, 2048, 16_384)
SECONDS = 1.5


def main() -> None:
    """Print the median and the fastest time of a call for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows to fit to")
    rows = max(parser.parse_args().rows, BATCHES[-1])
    data = make_rows(rows, np.random.default_rng(0))
    workflow = make_workflow(Path()).fit(data).remove_inputs("label")
    program = fold_tables(workflow.program)
    start = time.perf_counter()
    run = NumpyInterpreter(program)
    print(f"{len(program.inputs)} columns, {len(program.steps)} steps, fitted to {rows:,} rows.")
    print(f"Constructed in {time.perf_counter() - start:.2f} s.\n")
    alone = NumpyInterpreter(program, together=0)
    table = []
    for batch in BATCHES:
        request = {name: to_column(data[name][:batch]) for name in program.inputs}
        best, usual = measured(run, request)
        _, before = measured(alone, request)
        table.append((batch, usual, best, before, before / usual))
    names = ["rows", "p50 us", "fastest us", "p50 us, steps alone", "ratio"]
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, float_precision=2):
        print(pl.DataFrame(table, names, orient="row"))


def measured(
    run: Callable[[dict[str, Column]], object], request: dict[str, Column]
) -> tuple[float, float]:
    """The shortest and the median time of a call in microseconds."""
    for _ in range(3):
        run(request)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 20 or time.perf_counter() < end:
        start = time.perf_counter()
        run(request)
        times.append((time.perf_counter() - start) * 1e6)
    return min(times), median(times)


if __name__ == "__main__":
    main()
