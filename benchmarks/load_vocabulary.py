"""Loading large vocabularies: time and memory of a saved workflow, and of what serves it.

Each measurement is a process of its own, so that its memory is its alone:

    python -m benchmarks.load_vocabulary
    python -m benchmarks.load_vocabulary --keys 1000000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workflow import Workflow, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program, save_program
from workflow.schema.column import Array, Column, Strings
from workflow.schema.schema import ColumnSchema, Schema

KINDS = ("int64", "string")
BATCHES = (1, 64, 1024)
QUERIES = 50_000


def main() -> None:
    """Print a table: what it takes to load, and then to look up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        kind, folder = arguments.measure
        measured = measure_load(Path(folder)) if kind == "load" else measure_serving(Path(folder))
        print(json.dumps(measured))
        return
    print(f"{arguments.keys:,} keys of one column; memory is the process's peak over its start.\n")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in KINDS:
            folder = Path(scratch) / kind
            save(kind, arguments.keys, folder)
            rows.append({"keys": kind} | measure("load", folder) | measure("serving", folder))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True):
        print(pl.DataFrame(rows).transpose(include_header=True, header_name="", column_names=KINDS))


def keys_of(kind: str, count: int) -> Column:
    """Distinct keys in no order."""
    numbers = np.random.default_rng(0).permutation(count) * 7_919 + 2**40
    if kind == "int64":
        # Too far apart for a table by address.
        return Column(numbers * 104_729)
    texts = pl.select("user_" + pl.Series(numbers).cast(pl.String)).to_series()
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    return Column(Strings(data, np.append(0, np.cumsum(texts.str.len_bytes().cast(pl.Int64)))))


def save(kind: str, count: int, folder: Path) -> None:
    """A fitted workflow with a vocabulary of many keys, and its program, as an export has it."""
    workflow = Workflow(["user"] >> ops.Categorify())
    workflow.restore(
        Schema([ColumnSchema("user", kind)]), {1: {"learnt.user": keys_of(kind, count)}}, {}
    )
    workflow.save(folder)
    served(folder).mkdir()
    save_program(workflow.program, served(folder))


def served(folder: Path) -> Path:
    """Where the program lies, beside the workflow."""
    return folder.with_name(f"{folder.name}-served")


def measure(kind: str, folder: Path) -> dict[str, str]:
    """What a fresh process finds."""
    command = [sys.executable, "-m", "benchmarks.load_vocabulary", "--measure", kind, str(folder)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(answer.stdout))


def measure_load(folder: Path) -> dict[str, str]:
    """`Workflow.load`."""
    spent, _ = cost(lambda: Workflow.load(folder))
    return {"Workflow.load": spent}


def measure_serving(folder: Path) -> dict[str, str]:
    """The numpy interpreter of a saved program, and its lookups."""
    spent, interpreter = cost(lambda: NumpyInterpreter(load_program(served(folder))))
    table = {"numpy interpreter": spent}
    lookup = next(step for step in interpreter.program.steps if step.verb == "lookup")
    keys = lookup.parameters["keys"].values
    for rows in BATCHES:
        times = []
        for start in range(0, QUERIES - rows, max(rows, 100)):
            column = Column(queries(keys, start, rows))
            began = time.perf_counter()
            interpreter({"user": column})
            times.append(time.perf_counter() - began)
        table[f"p50 of {rows} rows"] = f"{np.median(times) * 1e6:,.1f} us"
    return table


def queries(keys: Array | Strings, start: int, rows: int) -> Array:
    """Some of the keys, as they arrive in a request."""
    if not isinstance(keys, Strings):
        return keys[start : start + rows].copy()
    first = keys.offsets[start : start + rows + 1]
    return Strings(keys.data[first[0] : first[-1]], first - first[0]).to_objects()


def cost(function: Callable[[], Any]) -> tuple[str, Any]:
    """Time, that of the processor, and peak memory beyond what was there; and the result."""
    before, began, computed = memory("VmRSS"), time.perf_counter(), time.process_time()
    made = function()
    seconds, cpu = time.perf_counter() - began, time.process_time() - computed
    megabytes = (memory("VmHWM") - before) / 1000
    return f"{seconds:.2f} s ({cpu:.2f} s CPU), {megabytes:,.0f} MB", made


def memory(what: str) -> int:
    """Kilobytes of this process: VmRSS is now, VmHWM the most so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0])


if __name__ == "__main__":
    main()
