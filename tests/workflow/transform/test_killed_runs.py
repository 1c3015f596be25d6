"""Whenever a run is killed: its rows are all there or none, and the next run finds a clean folder."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
from pathlib import Path

import at_calls
import numpy as np
import polars as pl
import pytest

from loader import KerasSequenceLoader, LoaderError
from workflow import Workflow, WorkflowError, ops
from workflow.transform.dataset_run import run_into

ROWS = 250
# More than any of the runs takes; a walk through the steps ends where none is struck.
MOST_STEPS = 300


@pytest.fixture
def rows():
    return pl.DataFrame({"n": np.arange(ROWS), "label": np.arange(ROWS) % 2})


@pytest.fixture
def place(killed, rows):
    """A saved workflow, its data and a place for what it makes."""
    shutil.rmtree(killed.root)
    killed.root.mkdir()
    Workflow(["n", "label"] >> ops.LambdaOp(lambda column: column * 1)).fit(rows).save(
        killed.root / "workflow"
    )
    rows.write_parquet(killed.root / "rows.parquet")
    return killed.root


def transform(killed, place, step=0, **options):
    paths = {"workflow": place / "workflow", "data": place / "rows.parquet", "out": place / "out"}
    return killed("transform", step, **paths, **options)


def read(folder, way=0):
    """The rows that both readers find in a folder, or the text with which they refuse it.

    Args:
        folder: its path.
        way: the number of a way to name it.
    """
    data = (folder, str(folder / "*.parquet"), folder.parent / "o*")[way % 3]

    def fitted():
        return Workflow(["n"]).fit(data).transform(data).collect()["n"].to_list()

    def loaded():
        batches = KerasSequenceLoader(data, 1000, ["label"], cont_names=["n"], shuffle=False)
        return [int(n) for x, _ in batches for n in x["n"].numpy()[:, 0]]

    found, refused = [], []
    for reader in (fitted, loaded):
        try:
            found.append(reader())
        except (WorkflowError, LoaderError) as error:
            refused.append(str(error))
    assert not found or not refused, refused
    assert all(rows == found[0] for rows in found)
    return found[0] if found else refused[0]


@pytest.mark.parametrize(
    ("shuffle", "at"),
    [
        pytest.param(False, "step", marks=pytest.mark.long),
        pytest.param(True, "step", marks=pytest.mark.long),
        pytest.param(True, "call", marks=pytest.mark.faults),
    ],
)
def test_a_killed_transform_leaves_all_rows_or_none(killed, place, shuffle, at, tally):
    """At each step of Python, or at each call to the operating system."""
    seen = set()
    for step in range(1, MOST_STEPS) if at == "step" else at_calls.each():
        shutil.rmtree(place / "out", ignore_errors=True)
        report = transform(killed, place, shuffle=shuffle, **{at: step})
        if report["status"] == 0:
            break
        assert report["status"] == -signal.SIGKILL, report["words"]
        left = read(place / "out", step)
        if isinstance(left, str):
            assert "No parquet file matches" in left or "when it was killed" in left, step
        else:
            assert sorted(left) == list(range(ROWS)), step
        seen.add("rows" if isinstance(left, list) else left[:8])
        again = transform(killed, place, shuffle=shuffle)
        if isinstance(left, list):
            assert "holds parquet files already" in again["words"], step
        else:
            assert again["status"] == 0, again["words"]
        assert sorted(read(place / "out")) == list(range(ROWS)), step
        names = {path.name for path in (place / "out").iterdir()}
        assert names == {"_schema.json", *(f"part-0000{n}.parquet" for n in range(3))}, step
        tally()
    assert step > 30
    assert seen == {"rows", "Expected", "No parqu"} or at_calls.EVERY > 1


@pytest.mark.long
def test_killed_again_while_what_a_kill_left_is_removed(killed, place):
    """With some parts in place, where removing them is what matters."""
    for step in range(1, MOST_STEPS):
        shutil.rmtree(place / "out", ignore_errors=True)
        transform(killed, place, step)
        if len(list((place / "out").glob("part-*"))) == 2:
            break
    shutil.copytree(place / "out", place / "before")
    for step in range(1, MOST_STEPS):
        shutil.rmtree(place / "out")
        shutil.copytree(place / "before", place / "out")
        if transform(killed, place, step)["status"] == 0:
            break
        left = read(place / "out")
        assert "when it was killed" in left if isinstance(left, str) else len(left) == ROWS
        if isinstance(left, str):
            assert transform(killed, place)["status"] == 0
        assert sorted(read(place / "out")) == list(range(ROWS)), step
    assert step > 30


def test_an_older_data_set_is_not_touched_by_a_run_that_is_refused(killed, place):
    transform(killed, place)
    before = {path.name: path.read_bytes() for path in (place / "out").iterdir()}
    assert "holds parquet files already" in transform(killed, place)["words"]
    assert {path.name: path.read_bytes() for path in (place / "out").iterdir()} == before


def test_a_refused_run_leaves_the_workflow_of_the_one_that_writes(rows, place):
    def fit(frame):
        Workflow(["n"] >> ops.Categorify()).fit_transform_to_parquet(
            frame, place / "out", save_to=place / "fitted"
        )

    fit(rows)
    shutil.rmtree(place / "out")
    with (
        run_into(place / "out"),
        pytest.raises(WorkflowError, match="no other transform writes to"),
    ):
        fit(rows[:50])
    # An id of each number, and those of padding, nulls and unknown ones.
    assert Workflow.load(place / "fitted").output_schema["n"].properties["cardinality"] == ROWS + 3


def test_two_runs_into_one_folder(rows, place):
    """The second is refused while the first one writes, and the first ends as if alone."""
    workflow = Workflow.load(place / "workflow")
    second = []

    def both(frame):
        if not second:
            second.append(None)
            with pytest.raises(WorkflowError, match="no other transform writes to") as error:
                workflow.transform_to_parquet(rows[:50], place / "out")
            with pytest.raises(WorkflowError, match="still writing"):
                Workflow(["n"]).fit(place / "out")
            second[0] = str(error.value)
        return frame

    slow = rows.lazy().map_batches(both, schema=rows.schema)
    files = workflow.transform_to_parquet(slow, place / "out", rows_per_file=100)
    assert str(place / "out") in second[0]
    assert pl.read_parquet(files).equals(rows)
    assert read(place / "out") == list(range(ROWS))
    assert {path.name for path in (place / "out").iterdir()} == {
        "_schema.json",
        *(path.name for path in files),
    }


def test_a_file_system_without_locks(rows, place, monkeypatch):
    """Making the marker still keeps a second run out; what a killed one left is not ours to remove."""

    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    workflow = Workflow.load(place / "workflow")
    (place / "out" / ".writing").mkdir(parents=True)
    with pytest.raises(WorkflowError, match=r"then remove .*out/\.writing"):
        workflow.transform_to_parquet(rows, place / "out")
    (place / "out" / ".writing" / "lock").unlink()
    (place / "out" / ".writing").rmdir()
    assert pl.read_parquet(workflow.transform_to_parquet(rows, place / "out")).equals(rows)


@pytest.mark.parametrize("moment", range(1, 5))
def test_a_rename_that_fails_leaves_no_folder(rows, place, monkeypatch, moment):
    rename, calls = os.rename, []

    def failing(*paths):
        calls.append(paths)
        if len(calls) == moment:
            raise OSError(5, "Input/output error")
        rename(*paths)

    monkeypatch.setattr(os, "rename", failing)
    workflow = Workflow.load(place / "workflow")
    with pytest.raises(WorkflowError, match="Input/output error"):
        workflow.transform_to_parquet(rows, place / "out", rows_per_file=100)
    monkeypatch.undo()
    assert not (place / "out").exists()


def test_what_is_published_is_on_the_disk_first(rows, place, monkeypatch):
    """Each file is synced before it leaves the scratch folder, and the folder before the manifest."""
    log = []

    def logged(kind, call, path_of):
        def logging(*arguments):
            path = re.sub(r"\.[0-9a-f]{8}\.partial", ".partial", str(path_of(*arguments)))
            log.append((kind, os.path.relpath(path, place)))
            return call(*arguments)

        return logging

    opened = lambda descriptor: Path(f"/proc/self/fd/{descriptor}").readlink()  # noqa: E731
    renamed = lambda _, path: Path(path)  # noqa: E731
    for name, path_of in {"fsync": opened, "rename": renamed, "replace": renamed}.items():
        monkeypatch.setattr(os, name, logged(name, getattr(os, name), path_of))
    out = Path("deep/out")
    Workflow.load(place / "workflow").transform_to_parquet(rows, place / out, rows_per_file=300)
    begin = next(n for n, (_, path) in enumerate(log) if path.endswith("part-00000.parquet"))
    assert {("fsync", "deep"), ("fsync", ".")} <= set(log[:begin])
    assert log[begin + 1 : begin + 8] == [
        ("fsync", f"{out}/.writing/_schema.json.partial"),
        ("replace", f"{out}/.writing/_schema.json"),
        ("fsync", f"{out}/.writing"),
        ("rename", f"{out}/part-00000.parquet"),
        ("fsync", str(out)),
        ("rename", f"{out}/_schema.json"),
        ("fsync", str(out)),
    ]
    assert log[begin][0] == "fsync"
