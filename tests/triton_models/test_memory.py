"""The memory of an instance: a process that has a TensorFlow of its own, without Keras and pandas."""

import os
from pathlib import Path

import pytest

# `import tensorflow` alone is more than 200 MB that no other process shares.
MOST = 150_000_000


def instances(model):
    """The processes of this test's servers that hold instances of a model."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if any(word.startswith(f"{model}_0".encode()) for word in words):
            found.append(folder)
    return [folder for folder in found if is_mine(int(folder.name))]


def is_mine(process):
    while process > 1 and process != os.getpid():
        status = Path(f"/proc/{process}/status").read_text()
        process = int(status.partition("PPid:")[2].split()[0])
    return process == os.getpid()


def unshared(folder):
    """The bytes of a process that are in no file."""
    lines = (folder / "smaps_rollup").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Pss_Anon:"))
    return int(line.split()[1]) * 1024


@pytest.mark.usefixtures("server")
def test_an_instance_of_the_tensorflow_backend_takes_what_a_session_needs():
    (instance,) = instances("sums")
    assert b"tensorflow" in (instance / "maps").read_bytes()
    assert unshared(instance) < MOST
