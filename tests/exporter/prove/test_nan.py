"""A NaN among the features, of which TensorFlow makes one number or another by the processor.

By the environment variable TensorFlow joins products with relu, as it does by itself on some
processors, or leaves them apart; relu of NaN is 0 in the first case. It is read once a process.
"""

import json
import os
import subprocess
import sys

import nan_exports
import pytest


def exported(folder, onednn):
    """The exports of this process, or of another with the variable."""
    if onednn is None:
        return nan_exports.export_all(folder)
    done = subprocess.run(
        [sys.executable, nan_exports.__file__, folder],
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": onednn, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "onednn", [None, *(pytest.param(value, marks=pytest.mark.long) for value in "01")]
)
def test_an_export_does_not_depend_on_what_a_processor_makes_of_a_nan(onednn, tmp_path):
    made = exported(tmp_path, onednn)
    assert len(made) == 4
    # A server on another processor is asked for the rows too, and held to the numbers alone.
    for rows in made.values():
        assert not rows["negative numbers"]
        assert rows["usual values"]
        assert rows["the report says so"]
