"""A file is replaced by one rename, after its content has reached the disk."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from threading import Thread

import pytest

from workflow.files.durable import replace_file, replacing


def test_a_file_is_replaced_once_it_is_on_the_disk(tmp_path, monkeypatch):
    path, events = tmp_path / "network.keras", []
    path.write_text("old")
    fsync, replace = os.fsync, os.replace

    def noted(descriptor):
        events.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def watched(source, target):
        events.append("replaced")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", watched)
    with replacing(path, ".keras") as draft:
        assert draft.suffix == ".keras"
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert events == [path.stat().st_ino, "replaced", tmp_path.stat().st_ino]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("where", ["in the block", "on the disk"])
def test_an_error_leaves_the_old_file_and_nothing_else(where, tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError("Input/output error")

    def write():
        with replacing(path) as draft:
            draft.write_text("half")
            if where == "in the block":
                fail(0)

    path = tmp_path / "network.keras"
    path.write_text("old")
    if where == "on the disk":
        monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_itself(tmp_path):
    """As root even /dev/null became a file, of all programs of the machine."""
    path, received = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    reader.start()
    replace_file(path, b"facts")
    assert stat.S_ISFIFO(path.lstat().st_mode)
    reader.join(10)
    assert received == [b"facts"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("to", [subprocess.PIPE, "file"])
def test_standard_output_is_written_by_its_path(to, tmp_path):
    code = (
        "from pathlib import Path; from workflow.files.durable import replace_file\n"
        "replace_file(Path('/dev/fd/1'), b'facts')"
    )
    with (tmp_path / "out").open("w+") as file:
        output = file if to == "file" else to
        done = subprocess.run([sys.executable, "-c", code], stdout=output, text=True, check=True)
        assert (file.read() if to == "file" else done.stdout) == "facts"
