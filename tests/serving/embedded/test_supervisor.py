"""The supervisor of a server's processes, with scripts in the server's place."""

import os
import subprocess
import sys

import pytest

from serving.embedded.supervisor import Job

# Linux keeps 15 bytes of a program's name, so that a letter of several bytes may be cut.
NAMED = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"caf\\xe9", 0, 0, 0)
print(flush=True)
sys.stdin.read()
"""
PATIENT = """
import pathlib, signal, sys, time
def end(*_):
    time.sleep(0.5)
    pathlib.Path("answered").touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path("started").touch()
signal.pause()
"""
# A model in Python may start such a process, which no signal to the server's group reaches.
DETACHED = """
import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("number").write_text(str(child.pid))
pathlib.Path("started").touch()
time.sleep(600)
"""


@pytest.fixture
def supervised(tmp_path, wait_for):
    """Runs a script under a supervisor, once it has made the file `started`."""
    started = []

    def run(script):
        job = Job(
            command=[sys.executable, "-c", script],
            environment={**os.environ},
            directory=str(tmp_path),
            remove=str(tmp_path / "parts"),
            shm_prefix="none-",
            owner=os.getpid(),
            grace=5.0,
            all_python=False,
        )
        with (tmp_path / "log").open("wb") as log:
            started.append(job.start(log))
        wait_for((tmp_path / "started").exists)
        return started[0]

    yield run
    for supervisor in started:
        supervisor.kill()
        supervisor.wait()


def test_it_shares_the_processors_with_its_owner_and_not_ctrl_c(supervised):
    """In a session of its own, beside a busy one, threads of a server waited for more than a second."""
    supervisor = supervised(PATIENT)
    assert os.getsid(supervisor.pid) == os.getsid(0)
    assert os.getpgid(supervisor.pid) != os.getpgid(0)


def test_a_program_of_any_name_does_not_cut_requests_off(supervised, tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", NAMED], **pipes) as other:
        other.stdout.readline()
        supervisor = supervised(PATIENT)
        supervisor.terminate()
        assert supervisor.wait(20) == 0
        other.stdin.close()
    assert (tmp_path / "answered").exists()


def test_a_process_in_a_session_of_its_own_ends_with_the_server(supervised, tmp_path):
    supervisor = supervised(DETACHED)
    (tmp_path / "parts").mkdir()
    detached = int((tmp_path / "number").read_text())
    try:
        supervisor.terminate()
        supervisor.wait(20)
        assert not (tmp_path / "parts").exists()
        with pytest.raises(ProcessLookupError):
            os.kill(detached, 0)
    finally:
        subprocess.run(["kill", "-9", str(detached)], check=False, capture_output=True)
