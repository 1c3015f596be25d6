"""A list column costs what its values cost as a flat column, whatever is done to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, ops
from workflow.expressions.polars.series import to_lists
from workflow.expressions.polars.stages import ELEMENT, compile_stages, run_stages, stages

BASKETS, PRODUCTS = 300_000, 60_000

# Runs in a process of its own, which has no free memory of other work.
MEASURE = """
import json, sys
from pathlib import Path
import polars as pl
from benchmarks.measure import memory_gb, peak_memory
from test_lists_by_element import WORKFLOWS, baskets

make, column = WORKFLOWS[sys.argv[1]]
run = {
    "collect": lambda workflow, rows: workflow.transform(rows).collect(),
    "streaming": lambda workflow, rows: workflow.transform(rows.lazy()).collect(engine="streaming"),
    "files": lambda workflow, rows: workflow.transform_to_parquet(rows, Path(sys.argv[3]) / str(rows.height)),
}[sys.argv[2]]
def measure(rows):
    before = memory_gb("VmRSS")
    with peak_memory() as peak:
        run(make().fit(rows), rows)
    return peak[0] - before

measure(baskets(column, flat=False, count=20))  # what is imported and allocated once
rows = baskets(column, flat=sys.argv[4] == "flat")
print(json.dumps([measure(rows), rows["values"].estimated_size("gb")]))
"""


def baskets(column: str, *, flat: bool, count: int = BASKETS) -> pl.DataFrame:
    """Baskets of 0 to 19 products, their values as lists or in rows of their own."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(0, 20, count)
    products = rng.integers(0, PRODUCTS, lengths.sum())
    values = {
        # Far apart, so that they are found by their hash, and near each other, by their address.
        "sparse": lambda: products * 1_000_003,
        "dense": lambda: products,
        "texts": lambda: np.char.add("product ", products.astype(str)).astype(object),
        "prices": lambda: products / 7,
    }[column]()
    series = pl.Series("values", values)
    label = pl.Series("label", products % 2 == 0)
    if flat:
        return pl.DataFrame([series, label])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pl.DataFrame([to_lists(series, offsets).alias("values"), label[:count]])


def joined() -> pl.DataFrame:
    ids = np.arange(PRODUCTS) * 1_000_003
    return pl.DataFrame({"values": ids, "price": ids / 3.0, "name": ids.astype(str)})


WORKFLOWS = {
    "Categorify by hash": (lambda: Workflow(["values"] >> ops.Categorify()), "sparse"),
    "Categorify by address": (lambda: Workflow(["values"] >> ops.Categorify()), "dense"),
    "Categorify of strings": (lambda: Workflow(["values"] >> ops.Categorify()), "texts"),
    "HashBucket": (lambda: Workflow(["values"] >> ops.HashBucket(1000)), "sparse"),
    "HashBucket of strings": (lambda: Workflow(["values"] >> ops.HashBucket(1000)), "texts"),
    "Bucketize": (
        lambda: Workflow(["values"] >> ops.Bucketize(list(range(0, 9000, 10)))),
        "prices",
    ),
    "JoinExternal": (
        lambda: Workflow(["values"] >> ops.JoinExternal(joined(), on="values")),
        "sparse",
    ),
    "LambdaOp": (lambda: Workflow(["values"] >> ops.LambdaOp(lambda c: c * c + c)), "dense"),
    "Normalize": (lambda: Workflow(["values"] >> ops.Normalize()), "prices"),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "way"),
    [
        *(("Categorify by hash", way) for way in ("collect", "streaming", "files")),
        *((name, "collect") for name in ("Categorify of strings", "JoinExternal", "Bucketize")),
    ],
)
def test_memory_is_that_of_the_flat_values_and_some_copies_of_them(name, way, tmp_path):
    def taken(form):
        command = [sys.executable, "-c", MEASURE, name, way, str(tmp_path / form), form]
        environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return json.loads(done.stdout)

    (flat, copy), (lists, _) = taken("flat"), taken("lists")
    # Two copies are those of `explode`.
    assert lists <= flat + 6 * copy, (flat, lists, copy)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_answers_are_those_of_the_flat_values(name):
    make, column = WORKFLOWS[name]
    rows, flat = (baskets(column, flat=form, count=2_000) for form in (False, True))
    workflow = make().fit(rows)
    made = workflow.transform(rows).collect()
    wanted = make().fit(flat).transform(flat).collect()
    for output in wanted.columns:
        assert made[output].list.len().equals(rows["values"].list.len(), check_names=False)
        assert made[output].explode(empty_as_null=False).equals(wanted[output], null_equal=True)


def test_elements_of_one_list_are_made_in_one_pass():
    lists = ["l"] >> ops.LambdaOp(lambda c: c.fill_null(0) * 2)
    outputs = lists + (lists >> ops.HashBucket(10) >> ops.Rename(postfix="_hashed"))
    program = Workflow(outputs).fit({"l": [[1, None], [], [3]]}).program
    (stage,) = [stage for stage in stages(program) if stage.elements_of]
    assert list(stage.program.inputs) == [ELEMENT]
    assert len(stage.program.outputs) == 2


def test_list_columns_share_their_stages():
    """A stage for each repeated the names of all columns, so that 2,000 took gigabytes."""

    def stages_and_rows(count):
        data = {f"list {number}": [[number, 7], [], [7]] for number in range(count)}
        workflow = Workflow([*data] >> ops.Categorify()).fit(pl.DataFrame(data))
        compiled = compile_stages(workflow.program)
        return len(compiled), run_stages(pl.LazyFrame(data), compiled).collect()

    (few, _), (many, rows) = stages_and_rows(2), stages_and_rows(40)
    assert many == few
    for number in range(40):
        # Ids start at 3. 7 is the most frequent value; column 7 has no other.
        first = [3, 3] if number == 7 else [4, 3]
        assert rows[f"list {number}"].to_list() == [first, [], [3]]
