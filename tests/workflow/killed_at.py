"""A process that is killed at one of its steps, to see what it leaves.

A step is whatever changes the disk: a file opened to be written, made, renamed, removed or synced,
a folder made or removed, or parquet written by Polars, which is cut short where the kill strikes.

    python killed_at.py FOLDER     # then a line of JSON for each run: {"action", "step", ...}

With "call" in place of "step" a kill strikes at a call of the operating system, see at_calls.py.

It imports what a run needs and forks once for each line, so that a kill costs no new start. It
answers with a line each: {"status": negative for a signal, "words": of an error}.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


class Killer:
    """One `SIGKILL` at a step of this process; none for step 0."""

    def __init__(self, root: str, step: int) -> None:
        self.root, self.left = root, step

    def watch(self) -> None:
        import polars as pl

        sys.addaudithook(self.hook)
        fsync, write = os.fsync, pl.DataFrame.write_parquet

        def counted(descriptor):
            self.count()
            fsync(descriptor)
            self.count()

        def cut(frame, path, **options):
            write(frame, path, **options)
            if self.left == 1:
                os.truncate(path, path.stat().st_size // 2)
            self.count()

        os.fsync, pl.DataFrame.write_parquet = counted, cut

    def hook(self, event, arguments):
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if (event in CHANGES or opened) and str(arguments[0]).startswith(self.root):
            self.count()

    def count(self):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def transform(workflow, data, out, shuffle=False):
    """Long enough for several files."""
    from workflow import Workflow

    Workflow.load(workflow).transform_to_parquet(data, out, rows_per_file=100, shuffle=shuffle)


def save(workflow, out):
    from workflow import Workflow

    Workflow.load(workflow).save(out)


def run(action, step, root, call=0, **options):
    """Run in a fork; gives its exit status, and its last words."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Killer(root, step).watch()
            if call:
                ctypes.CDLL(None).arm(ctypes.c_long(call), 0)
            globals()[action](**options)
            status = 0
        except BaseException as error:  # noqa: BLE001 - nothing may leave the child
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        words = pipe.read().decode()
    return {"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "words": words}


class Process:
    """The other end of this script; `library` is preloaded for kills at calls."""

    def __init__(self, root: Path, library: str = "") -> None:
        command = [sys.executable, __file__, str(root)]
        pipe = subprocess.PIPE
        environment = os.environ | {"LD_PRELOAD": library}
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def __call__(self, action: str, step: int = 0, **options: object) -> dict:
        line = json.dumps({"action": action, "step": step, **options}, default=str)
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    # Once, before the forks: the package itself imports nothing until a name is used.
    importlib.import_module("workflow.workflow")
    for line in sys.stdin:
        print(json.dumps(run(root=sys.argv[1], **json.loads(line))), flush=True)  # noqa: T201
