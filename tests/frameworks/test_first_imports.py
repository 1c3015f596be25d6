"""Threads may be the first to use our packages, at once: TensorFlow and Keras import each other."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading

errors, uses = [], sys.argv[1:]
at_once = threading.Barrier(len(uses))

def use(package, name):
    at_once.wait()
    try:
        getattr(__import__(package), name)
    except BaseException as error:
        errors.append(f"{package}.{name}: {type(error).__name__}: {error}")

threads = [threading.Thread(target=use, args=each.split(".")) for each in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("; ".join(errors) or None)
"""


@pytest.mark.parametrize(
    "uses",
    [
        ["training.train", "loader.KerasSequenceLoader", "exporter.export_ensemble"],
        pytest.param(
            ["loader.LoaderCheckpoint", "loader.KerasSequenceLoader"], marks=pytest.mark.long
        ),
        pytest.param(
            ["loader.KerasSequenceValidater", "training.layers", "serving.check_parity"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_threads_may_import_at_once(uses):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *uses], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
