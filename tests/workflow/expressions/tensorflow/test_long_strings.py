"""One long string among short ones costs its own bytes, not its length for every row."""

import subprocess
import sys

import pytest

# In a process of its own, so that its peak of memory is that of one operation.
SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from benchmarks.measure import memory_gb, peak_memory
from workflow.schema.column import Column, Strings
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program import build
from workflow.expressions.tensorflow import TensorColumn, TensorFlowInterpreter
from workflow.expressions.language.tree import source
from workflow.expressions.language.types import Type
from workflow.schema.schema import ColumnSchema, Schema

a, b = source("a", Type("string", nullable=False)), source("b", Type("string", nullable=False))
made = {"hash": (a.hash(seed=7), "int64"), "order": (a < b, "bool")}
expression, dtype = made[sys.argv[1]]
names = [name for name in ("a", "b") if sys.argv[1] == "order" or name == "a"]
program = build(
    [(ColumnSchema("y", dtype, nullable=False), expression)],
    Schema([ColumnSchema(name, "string", nullable=False) for name in names]),
)
interpreter = TensorFlowInterpreter(program)
run = tf.function(
    lambda data: interpreter({n: TensorColumn(t) for n, t in data.items()})["y"].values,
    reduce_retracing=True,
)

def answers(long):
    texts = ["", "ab", "ü" * 300, "x" * 512] + ["short"] * 195 + ["z" * long]
    columns = {"a": texts, "b": texts[:-1] + ["z" * (long - 1) + "ü"]}
    tensors = {name: tf.constant(columns[name]) for name in names}
    here = run(tensors).numpy()
    numpy = {name: Column(np.array(columns[name], object)) for name in names}
    return here, NumpyInterpreter(program)(numpy)["y"].array

answers(1_000)  # What the first call loads is not counted.
before = memory_gb("VmRSS")
with peak_memory() as peak:
    here, there = answers(2_000_000)
np.testing.assert_array_equal(here, there)
print((peak[0] - before) * 1024)
"""


@pytest.mark.long
@pytest.mark.parametrize("operation", ["hash", "order"])
def test_tensorflow_takes_memory_for_the_bytes_that_there_are(operation):
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, operation], check=True, stdout=subprocess.PIPE, text=True
    )
    # As a matrix of 200 rows these two megabytes would be 400 of bytes, and 3,200 of numbers.
    assert float(answer.stdout) < 200
