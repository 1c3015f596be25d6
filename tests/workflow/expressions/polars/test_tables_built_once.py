"""A vocabulary is prepared once for a program, and not for each part of the data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from workflow.expressions.language.tree import source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.polars.stages import apply, compile_stages, run_stages
from workflow.expressions.program.program import build
from workflow.schema.column import Column, Strings
from workflow.schema.schema import ColumnSchema, Schema

KEYS = 500_000

# Runs in a process of its own, since a peak of memory stays for the life of a process.
MEASURE = """
import ctypes, json, sys
from pathlib import Path
from test_tables_built_once import few_rows, lookup_in, numbers, texts
from workflow.expressions.polars.stages import compile_stages, run_stages

def resident(name):
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024

keys = {"texts": texts, "numbers": numbers}[sys.argv[1]]()
stages, rows = compile_stages(lookup_in(keys)), few_rows(keys).lazy()
run_stages(rows, stages).collect()
ctypes.CDLL(None).malloc_trim(0)
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
for _ in range(3):
    run_stages(rows, stages).collect()
print(json.dumps(resident("VmHWM") - before))
"""


def texts(count: int = KEYS) -> Column:
    numbers = pl.Series(np.arange(count)).cast(pl.String).to_list()
    return Column(Strings.of(f"value {number}" for number in numbers))


def numbers() -> Column:
    return Column(np.arange(KEYS) * 1_000_003)


def few_rows(keys: Column) -> pl.DataFrame:
    return pl.DataFrame({"a": keys.array[:10].tolist()})


def lookup_in(keys: Column):
    dtype = "string" if isinstance(keys.values, Strings) else "int64"
    found = source("a", Type(dtype)).lookup(keys)
    return build([(ColumnSchema("row", "int64"), found)], Schema([ColumnSchema("a", dtype)]))


@pytest.mark.parametrize("kind", ["texts", "numbers"])
def test_a_query_over_few_rows_takes_no_memory_for_the_vocabulary(kind):
    environment = {
        "PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path]),
        # What is freed is given back, so that a peak is not hidden by memory that was kept.
        "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
    }
    command = [sys.executable, "-c", MEASURE, kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    # A table of the keys is 8 MB at least.
    assert json.loads(done.stdout) < 4


def test_compiled_once_a_program_finds_strings_in_every_part_of_the_data():
    keys = texts(1_000)
    stages = compile_stages(lookup_in(keys))
    rows = pl.DataFrame({"a": ["value 7", None, "value 1000", "", "value 999"] * 3})
    parts = [run_stages(rows[n : n + 4].lazy(), stages).collect() for n in range(0, 15, 4)]
    assert pl.concat(parts)["row"].to_list() == [7, None, -1, -1, 999] * 3


def test_a_string_that_is_a_key_twice_is_refused():
    program = lookup_in(Column(Strings.of(["a", "b", "a"])))
    with pytest.raises(ExpressionError, match=r"keys that differ. Received: \['a'\]"):
        apply(pl.LazyFrame({"a": ["a"]}), program)
