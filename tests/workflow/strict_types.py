"""Programs that a type checker reads as a user's code."""

from contextlib import chdir
from pathlib import Path

from mypy import api


def assert_typed(folder, program):
    """Check a program with mypy in its strict mode, by the settings and the packages of this project."""
    (folder / "script.py").write_text(program)
    with chdir(Path(__file__).parents[2]):
        found, _, code = api.run(["--strict", str(folder / "script.py")])
    assert code == 0, found
