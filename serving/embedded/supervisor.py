"""A script that keeps a server from outliving its owner, started by `serving.embedded.server`.

It starts the server and waits for the first of: the server's exit, SIGTERM, the owner's death. Then
it stops the server and all remaining processes of it, and removes the server's shared memory and
temporary files. It survives a killed owner, unlike any code in the owner. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
# Seconds between two looks at the processes of a server's models while it stops, and how many looks in
# turn have to find that all have ended, since Triton may replace one, or that none of them is alive.
LOOK_EVERY, GONE, DEAD = 0.1, 2, 20
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Linux's folder for it


@dataclass(frozen=True)
class Job:
    """The process to supervise.

    Attributes:
        command: the server's command line.
        environment: the server's whole environment.
        directory: the server's working directory.
        remove: a folder to remove at the end.
        shm_prefix: prefix of the names of the server's shared memory.
        owner: the process for which the server runs.
        grace: seconds between SIGTERM and SIGKILL.
        all_python: whether every model runs in a process of its own, as all do on Python backends.
    """

    command: list[str]
    environment: dict[str, str]
    directory: str
    remove: str
    shm_prefix: str
    owner: int
    grace: float
    all_python: bool

    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a supervisor in a new process group, so that Ctrl-C does not reach it.

        The session stays the caller's: Linux shares the processors among sessions first, and in one of
        its own a thread may wait for more than a second, after which Triton gives a process up.

        It reads the job from a pipe: command lines are visible to every user of the machine, and
        the environment may contain secrets and be longer than an argument may be.

        Args:
            log: an open file for the output of the server and of the supervisor.

        Raises:
            OSError: the supervisor cannot be started.
        """
        # The supervisor ignores the prefix, which identifies it in a list of processes.
        command = [sys.executable, "-I", "-S", __file__, self.shm_prefix]
        supervisor = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
        )
        try:
            with cast("IO[bytes]", supervisor.stdin) as pipe:
                pipe.write(json.dumps(asdict(self)).encode() + b"\n")
        except BaseException:
            supervisor.kill()
            supervisor.wait()
            raise
        return supervisor


def run(job: Job) -> int:
    """Run a job to its end. Returns the server's exit status, 128 + n if signal n ended it."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphans of the server become our children, so that we can wait for their exit.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)

    # This process has one thread, so running Python between fork and exec is safe.
    server = subprocess.Popen(  # noqa: S603
        job.command,
        env=job.environment,
        cwd=job.directory,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=before_exec,  # noqa: PLW1509
    )
    try:
        _wait(server, job)
    finally:
        _clean(server, job)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _wait(server: subprocess.Popen[bytes], job: Job) -> None:
    """Wait for the end of the job: by SIGINT at once, otherwise after the requests under way."""
    while server.poll() is None:
        received = signal.sigtimedwait(AWAITED, 0.5)
        number = signal.SIGCHLD if received is None else received.si_signo
        if number == signal.SIGINT:
            return
        if number == signal.SIGTERM or os.getppid() != job.owner:
            server.terminate()
            _wait_for_requests(server, job)
            return


def _wait_for_requests(server: subprocess.Popen[bytes], job: Job) -> None:
    """Wait until a server that has been asked to end has ended, or has nothing left to wait for.

    The process of a Python model ends when its last request has been answered, a second later. Triton
    notices after up to a second more, and closes its ports for another one, which serves nobody.
    """
    end, had, gone, dead = time.monotonic() + job.grace, False, 0, 0
    while time.monotonic() < end and gone < GONE and dead < DEAD:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(LOOK_EVERY)
            return
        states = set(_children(server.pid).values())
        had = had or bool(states)
        gone = gone + 1 if had and not states and job.all_python else 0
        # A model whose process was killed or stopped is never unloaded.
        dead = dead + 1 if states and states <= {"Z", "T"} else 0


def _children(process: int) -> dict[int, str]:
    """The children of a process, and their states."""
    children = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            # Before the last ")" is a name, which may be any bytes.
            state, parent = file.read_bytes().rpartition(b") ")[2].split()[:2]
            if int(parent) == process:
                children[int(file.parent.name)] = state.decode()
    return children


def _clean(server: subprocess.Popen[bytes], job: Job) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    with contextlib.suppress(ChildProcessError):
        while True:
            # Those that left the server's group are children of this process by now.
            for child in _children(os.getpid()):
                os.kill(child, signal.SIGKILL)
            os.wait()
    for region in SHARED_MEMORY.glob(job.shm_prefix + "*"):
        region.unlink(missing_ok=True)
    shutil.rmtree(job.remove, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run(Job(**json.loads(sys.stdin.readline()))))
