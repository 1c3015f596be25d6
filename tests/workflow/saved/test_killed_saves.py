"""Whatever happens to a save: the folder holds the old workflow or the new one, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import at_calls
import pytest

from workflow import Workflow, WorkflowError, WorkflowFormatError, ops
from workflow.saved import save
from workflow.saved.saved_files import read_document

# More than a save takes; a walk through the steps ends where none is struck.
MOST_STEPS = 100


def fitted(*values):
    return Workflow(["a"] >> ops.Categorify()).fit({"a": list(values)})


def held(folder):
    """The vocabulary of the saved workflow."""
    return Workflow.load(folder).reverse_mapping("a")["value"].drop_nulls().to_list()


def names(folder):
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


@pytest.fixture
def place(killed):
    """A new workflow to be saved over an old one."""
    shutil.rmtree(killed.root)
    fitted(7, 9).save(killed.root / "new")
    fitted(1, 2, 3).save(killed.root / "old")
    return killed.root


@pytest.mark.parametrize("at", ["step", pytest.param("call", marks=pytest.mark.faults)])
@pytest.mark.parametrize(
    "over",
    [
        "old",
        pytest.param("new", marks=pytest.mark.long),
        pytest.param(None, marks=pytest.mark.long),
    ],
)
def test_killed_at_any_step_it_is_the_old_or_the_new_workflow(killed, place, over, at, tally):
    """A saved one is replaced, also by itself, and a missing one is not half there."""
    saved, seen = place / "saved", set()
    for step in range(1, MOST_STEPS) if at == "step" else at_calls.each():
        shutil.rmtree(saved, ignore_errors=True)
        if over is not None:
            shutil.copytree(place / over, saved)
        report = killed("save", workflow=place / "new", out=saved, **{at: step})
        if report["status"] == 0:
            break
        assert report["status"] == -signal.SIGKILL, report["words"]
        if over is None and not (saved / "workflow.json").exists():
            with pytest.raises(WorkflowFormatError):
                Workflow.load(saved)
        else:
            seen.add(tuple(held(saved)))
        assert killed("save", workflow=place / "new", out=saved)["status"] == 0
        assert held(saved) == [7, 9]
        assert names(saved) == ["state", "workflow.json"], step
        assert {path.name for path in place.iterdir()} == {"new", "old", "saved"}
        tally()
    assert step > 10
    everything = {(7, 9), (1, 2, 3)} if over == "old" else {(7, 9)}
    assert seen == everything or at_calls.EVERY > 1


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("moment", range(1, 5))
def test_a_call_that_fails_leaves_the_old_workflow(place, monkeypatch, call, moment):
    real, calls = getattr(os, call), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == moment:
            raise OSError(errno.EIO, "Input/output error")
        return real(*arguments)

    new = Workflow.load(place / "new")
    monkeypatch.setattr(os, call, failing)
    try:
        new.save(place / "old")
    except WorkflowError as error:
        assert "cannot be saved into" in str(error)  # noqa: PT017 - not every moment comes
        # The folder's own sync, when all is in place, is the last of them.
        assert held(place / "old") == ([7, 9] if call == "fsync" and moment == 4 else [1, 2, 3])
    else:
        assert len(calls) < moment
        assert held(place / "old") == [7, 9]
    assert names(place / "old") == ["state", "workflow.json"]


def test_a_failed_save_removes_the_folder_that_it_made(place, monkeypatch):
    def failing(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    new = Workflow.load(place / "new")
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(WorkflowError, match="No space left"):
        new.save(place / "deep" / "saved")
    assert not (place / "deep").exists()


def test_saves_at_once_leave_one_of_them(place):
    workflows = [fitted(*range(count)) for count in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda workflow: workflow.save(place / "saved"), workflows))
    assert held(place / "saved") in [list(range(count)) for count in range(1, 9)]
    assert names(place / "saved") == ["state", "workflow.json"]


def test_a_file_that_another_save_renamed_meanwhile_is_no_foreign_one(place, monkeypatch):
    real = Path.iterdir
    renamed = place / "old" / "state.0123abcd.partial"
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([*real(folder), renamed]))
    Workflow.load(place / "new").save(place / "old")
    assert held(place / "old") == [7, 9]


@pytest.fixture
def saves(monkeypatch):
    """Saves over the old workflow each time that its document was read: how often, and the reads."""
    counted = SimpleNamespace(left=0, reads=0)

    def read(folder):
        document = read_document(folder)
        counted.reads += 1
        if counted.left:
            counted.left -= 1
            fitted(counted.left, 100).save(folder)
        return document

    monkeypatch.setattr(save, "read_document", read)
    return counted


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_workflow_saved_while_it_is_loaded(saves, place, count):
    """The document that was read names a state that the save has removed."""
    saves.left = count
    assert held(place / "old") == [0, 100]


def test_loading_ends_though_saving_does_not(saves, place):
    saves.left = 1000
    with pytest.raises(WorkflowFormatError, match=r"no state-.*safetensors"):
        Workflow.load(place / "old")
    assert saves.left > 900


def test_a_missing_state_is_not_waited_for(saves, place):
    (state,) = (place / "old").glob("state-*")
    state.unlink()
    with pytest.raises(WorkflowFormatError, match=state.name):
        Workflow.load(place / "old")
    assert saves.reads == 2


def test_a_file_system_without_locks(place, monkeypatch):
    """Then only the workflow that is replaced is removed: what else is there may be another save's."""

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    (place / "old" / "state.1234abcd.partial").write_bytes(b"half")
    Workflow.load(place / "new").save(place / "old")
    assert held(place / "old") == [7, 9]
    assert names(place / "old") == ["state", "state.1234abcd.partial", "workflow.json"]


def test_any_changed_byte_is_refused(place, tally):
    saved = place / "old"
    for path in list(saved.iterdir()):
        raw = path.read_bytes()
        for at in range(len(raw)):
            for changed in (raw[at] ^ 1 << at % 8, raw[at] ^ 0xFF):
                path.write_bytes(raw[:at] + bytes([changed]) + raw[at + 1 :])
                with pytest.raises(WorkflowFormatError):
                    Workflow.load(saved)
                tally()
        for changed in (raw[:-1], raw + b"\n", raw + raw, raw[::-1], b""):
            path.write_bytes(changed)
            with pytest.raises(WorkflowFormatError, match=path.name.partition("-")[0]):
                Workflow.load(saved)
        path.write_bytes(raw)
    assert held(saved) == [1, 2, 3]


def test_files_of_two_workflows_are_no_workflow(place):
    for name in ("workflow.json", "state-*"):
        shutil.rmtree(place / "both", ignore_errors=True)
        shutil.copytree(place / "old", place / "both")
        (other,) = (place / "new").glob(name)
        (own,) = (place / "both").glob(name)
        shutil.copy(other, own)
        with pytest.raises(WorkflowFormatError, match="state"):
            Workflow.load(place / "both")


def test_a_damaged_workflow_can_be_saved_over(place):
    (place / "old" / "workflow.json").write_text("{")
    Workflow.load(place / "new").save(place / "old")
    assert held(place / "old") == [7, 9]
    assert names(place / "old") == ["state", "workflow.json"]
