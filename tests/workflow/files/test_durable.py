"""A file is replaced by one rename, after its content has reached the disk."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from workflow.files import durable
from workflow.files.durable import exclusive, lock, replace_file, replacing


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


def test_the_file_that_a_link_leads_to_is_replaced(tmp_path):
    """As a program that opens and writes it does; the link became a file, and its target stayed old."""
    (tmp_path / "disk").mkdir()
    path, target = tmp_path / "network.keras", tmp_path / "disk" / "network.keras"
    target.write_text("old")
    path.symlink_to("disk/network.keras")
    for content in (b"new", b"newer"):
        replace_file(path, content)
        assert path.is_symlink()
        assert target.read_bytes() == content
        assert list(target.parent.iterdir()) == [target]
        target.unlink()  # a link that leads nowhere yet


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path):
    """Such as a worker that another thread starts: the next export waited for its end."""
    reader, writer = os.pipe()
    with exclusive(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert lock(descriptor)
    finally:
        os.close(descriptor)
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_the_progress_says_whose_end_is_waited_for(tmp_path, stages, wait_for):
    """A second export into one repository looked as if it hung."""

    def second():
        with exclusive(tmp_path) as locked:
            return locked

    with ThreadPoolExecutor(1) as pool:
        with exclusive(tmp_path):
            waiting = pool.submit(second)
            wait_for(lambda: stages)
        assert waiting.result(60)
    assert [stage.title for stage in stages] == [f"waits for another process in {tmp_path}"]


def test_an_error_after_another_process_removed_the_folder_is_not_hidden(tmp_path, monkeypatch):
    """The descriptor of the removed folder is closed once: its number may be another file's by then."""
    monkeypatch.setattr(durable, "is_open_as", lambda *_: False)
    answers = iter([durable.make_folder])

    def make(folder):
        if (real := next(answers, None)) is None:
            raise PermissionError("no room")
        real(folder)

    monkeypatch.setattr(durable, "make_folder", make)
    with pytest.raises(PermissionError, match="no room"), exclusive(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()
