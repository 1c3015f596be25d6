"""Loading large vocabularies: time and memory of a saved workflow, and of what serves it.

    python -m benchmarks.vocabularies [--keys 10000000]

A workflow of one column of integers, and one of strings. Each measurement is a process of its own;
memory is its peak beyond the start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import in_child, memory_gb, options, show, timed
from workflow import Workflow, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program, save_program
from workflow.operator.feature import State
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.training_data import TrainingData

KINDS = ("int64", "string")


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
    return {"Workflow.load": cost(lambda: Workflow.load(folder))}


def serve(folder: Path) -> dict[str, str]:
    """The numpy interpreter of a saved program."""
    return {"numpy interpreter": cost(lambda: NumpyInterpreter(load_program(served(folder))))}


def cost(function: Callable[[], object]) -> str:
    """Time, that of the processor, and peak memory beyond what was there."""
    before = memory_gb("VmRSS")
    taken = timed(function, 1)
    megabytes = (memory_gb("VmHWM") - before) * 1024
    return f"{taken.seconds:.2f} s ({taken.processor:.2f} s CPU), {megabytes:,.0f} MB"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of the cost of loading."""
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
