"""A fork of a process that has used Polars is told so, and does not wait for threads that it lacks."""

import json
import subprocess
import sys

from in_a_fork import IN_A_FORK

# Polars alone, so that a fork is found out wherever our packages are imported first.
PROGRAM = """
import polars as pl

def fit():
    from workflow import Workflow, ops
    from workflow.engine import forks
    forks.PATIENCE = 1.0
    data = {"user": [7, 7, 9]}
    return Workflow(["user"] >> ops.Categorify()).fit_transform(data).collect()["user"].to_list()

def inspect():
    from workflow import inspect_dataset
    from workflow.engine import forks
    forks.PATIENCE = 1.0
    return len(inspect_dataset({"user": [7, 7, 9]}).columns)

def load():
    from loader import ArrayLoader
    from workflow.engine import forks
    forks.PATIENCE = 1.0
    return len(ArrayLoader({"user": [7, 7, 9]}, 2, cat_names=["user"]))

actions = fit, inspect, load
before = [in_a_fork(action)[0] for action in actions]
pl.LazyFrame({"n": range(1000)}).group_by("n").len().collect()
print(json.dumps([before, [in_a_fork(action)[0] for action in actions]]))
"""


def test_a_fork_works_until_its_parent_has_used_polars():
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FORK + PROGRAM], check=True, capture_output=True, text=True
    )
    before, after = json.loads(done.stdout)
    assert before == [[3, 3, 4], 1, 2]
    for answer, kind in zip(after, ("WorkflowError", "WorkflowError", "LoaderError"), strict=True):
        assert answer.startswith(f"{kind}: Expected a process in which Polars works."), answer
        assert "multiprocessing.get_context('spawn')" in answer
