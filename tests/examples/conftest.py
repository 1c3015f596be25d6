"""Examples, run as a newcomer would."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example():
    """Run an example with options; returns what it prints."""

    def run(name, *options):
        command = [sys.executable, EXAMPLES / f"{name}.py", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
