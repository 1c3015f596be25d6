"""Threads do not come along when a process is forked: the child is told, and does not hang."""

import json
import subprocess
import sys

import pytest
from in_a_fork import IN_A_FORK

SCRIPT = """
import multiprocessing, sys
from loader import ArrayLoader
from workflow.engine import forks

def make():
    # A buffer for a part of the data: after a batch there is more to read.
    return KerasSequenceLoader(
        sys.argv[1], 64, label_names=["y"], cat_names=["u"], seed=1, buffer_size=16_000
    )

def count(path):
    return len(list(ArrayLoader(path, 64, label_names=["y"], cat_names=["u"])))

"""
ACTIONS = """
if __name__ == "__main__":  # a process that is spawned does without TensorFlow
    from loader import KerasSequenceLoader

    read = in_a_fork(lambda: len(list(make())))
    loader = make()
    mapped = loader.map(lambda x, y: (x, y))
    idle = [
        in_a_fork(lambda: next(iter(loader)) and "read"),
        in_a_fork(lambda: loader.peek() and "read"),
        in_a_fork(lambda: next(iter(mapped)) and "read"),
        in_a_fork(lambda: [len(loader), loader.get_state()["batch"]]),
    ]
    batches = iter(loader)
    next(batches)
    open_iterator = [
        in_a_fork(lambda: len(list(batches))),
        in_a_fork(lambda: next(iter(loader)) and "read"),
        in_a_fork(lambda: loader.close()),
    ]
    rest = len(list(batches)), 0
    # Here Polars hangs, however long it is waited for.
    forks.PATIENCE = 1.0
    refused = in_a_fork(lambda: len(list(make())))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(count, sys.argv[1:]), 0
    print(json.dumps([read, *idle, *open_iterator, rest, refused, spawned]))
"""
ADVICE = "Start processes with multiprocessing.get_context('spawn'), and make the loader in"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("data")
    table = pa.table({"u": list(range(1000)), "y": [0.5] * 1000})
    pq.write_table(table, folder / "0.parquet", row_group_size=200)
    return folder


@pytest.fixture(scope="module")
def answers(data, tmp_path_factory):
    """The results of actions in forks, in their order; a child that does not end fails the test."""
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(IN_A_FORK + SCRIPT + ACTIONS)
    done = subprocess.run(
        [sys.executable, program, data],
        check=True,
        capture_output=True,
        text=True,
    )
    made = json.loads(done.stdout)
    assert [status for _, status in made] == [0] * len(made), done.stderr
    return [answer for answer, _ in made]


def test_a_loader_of_the_parent_is_refused(answers):
    iterated, peeked, mapped, asked, went_on, again, closed, rest = answers[1:-2]
    for answer in (iterated, peeked, went_on, again):
        assert answer.startswith("LoaderError: Expected a loader made in this process, "), answer
        assert ADVICE in answer
    # TensorFlow wraps what its input pipelines raise.
    assert mapped.startswith("InvalidArgumentError: ")
    assert ADVICE in mapped
    assert asked == [16, 0]
    assert closed is None
    assert rest == 15


def test_a_loader_of_the_child_reads_where_the_parent_has_not(answers):
    assert answers[0] == 16


def test_a_loader_of_the_child_is_refused_where_polars_hangs(answers):
    refused = answers[-2]
    assert refused.startswith("LoaderError: Expected a process in which Polars works. Received:")
    assert ADVICE in refused


def test_a_spawned_process_reads(answers):
    assert answers[-1] == 16
