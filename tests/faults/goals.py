"""The tests that docs/reliability.md names for each goal, for `make faults`."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ROW = re.compile(r"^\| (G\d+b?) \|(?:[^|\n]*\|){5}$", re.MULTILINE)
NAME = re.compile(r"`((?:\w+/)+test_\w+\.py)(?:::(test_\w+))?`")


def goals():
    """The goals of each test or file of tests, by its name below tests/."""
    named = {}
    for row in ROW.finditer(PAGE.read_text()):
        for file, test in NAME.findall(row[0]):
            named.setdefault(f"{file}::{test}" if test else file, []).append(row[1])
    return named


if __name__ == "__main__":
    # `make soak` has a time of its own.
    print(" ".join(f"tests/{name}" for name in goals() if "soak" not in name))  # noqa: T201
