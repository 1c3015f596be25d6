"""Loading large vocabularies: time and memory of a saved workflow, and of what serves it.

    python -m benchmarks.vocabularies [--keys 10000000]

A workflow of one column of integers, and one of strings. Each measurement is a process of its own;
memory is its peak beyond the start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from benchmarks.measure import Contestant, in_child, memory_gb, options, race, show, timed
from workflow import Workflow, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program, save_program
from workflow.operator.feature import State
from workflow.schema.column import Array, Column, Strings
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.training_data import TrainingData

T = TypeVar("T")
KINDS = ("int64", "string")
BATCHES = (1, 64, 1024)
QUERIES = 50_000


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
    states: dict[int, State] = {1: {"learnt.user": keys_of(kind, count)}}
    workflow.restore(Schema([ColumnSchema("user", kind)]), states, {}, TrainingData())
    workflow.save(folder)
    served(folder).mkdir()
    save_program(workflow.program, served(folder))


def served(folder: Path) -> Path:
    """The program's folder, beside the workflow's."""
    return folder.with_name(f"{folder.name}-served")


def load_workflow(folder: Path) -> dict[str, str]:
    """`Workflow.load`."""
    return {"Workflow.load": cost(lambda: Workflow.load(folder))[0]}


def serve(folder: Path) -> dict[str, str]:
    """The numpy interpreter of a saved program, and its lookups."""
    spent, interpreter = cost(lambda: NumpyInterpreter(load_program(served(folder))))
    table = {"numpy interpreter": spent}
    lookup = next(step for step in interpreter.program.steps if step.verb == "lookup")
    keys = lookup.parameters["keys"].values
    for rows in BATCHES:
        starts = iter(range(0, QUERIES, max(rows, 100)))

        def ask(rows: int = rows, starts: Any = starts) -> Any:
            column = Column(queries(keys, next(starts), rows))
            return timed(lambda: len(interpreter({"user": column})["user"].values))

        asked = Contestant(f"{rows} rows", ask, rows)
        race([asked], min(500, QUERIES // max(rows, 100), (len(keys) - rows) // max(rows, 100)))
        table[f"p50 of {rows} rows"] = f"{asked.seconds * 1e6:,.1f} us"
    return table


def queries(keys: Array | Strings, start: int, rows: int) -> Array:
    """Some of the keys, as they arrive in a request."""
    if not isinstance(keys, Strings):
        return keys[start : start + rows].copy()
    first = keys.offsets[start : start + rows + 1]
    return Strings(keys.data[first[0] : first[-1]], first - first[0]).to_objects()


def cost(function: Callable[[], T]) -> tuple[str, T]:
    """Time, that of the processor, and peak memory beyond what was there; and the result."""
    before, made = memory_gb("VmRSS"), list[T]()

    def work() -> int:
        made.append(function())
        return 1

    taken = timed(work)
    megabytes = (memory_gb("VmHWM") - before) * 1024
    return f"{taken.seconds:.2f} s ({taken.processor:.2f} s CPU), {megabytes:,.0f} MB", made[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: the cost of loading, and then of lookups."""
    parsed = options(__doc__, keys=10_000_000).parse_args(arguments)
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in KINDS:
            folder = Path(scratch, kind)
            save(kind, parsed.keys, folder)
            measured = [in_child(part, folder) for part in (load_workflow, serve)]
            table.append({"keys": kind} | measured[0] | measured[1])
    show(f"{parsed.keys:,} keys of one column", table)


if __name__ == "__main__":
    main()
