"""docs/reliability.md has a row for each goal, and names tests that exist."""

import re
from pathlib import Path

from goals import PAGE, ROW, goals

ROOT = Path(__file__).parents[2]


def test_each_goal_has_a_row_with_its_tests_and_figures():
    rows = {match[1]: match[0] for match in ROW.finditer(PAGE.read_text())}
    assert list(rows) == [
        *(f"G{n}" for n in range(1, 19)),
        "G18b",
        *(f"G{n}" for n in range(19, 28)),
    ]
    for row in rows.values():
        _, tried, survived, lost, shown = [cell.strip() for cell in row.split("|")[2:-1]]
        if tried != "-":
            numbers = [int(cell.replace(",", "")) for cell in (tried, survived, lost)]
            assert numbers[0] == numbers[1] + numbers[2] > 0
        assert "test_" in shown


def test_the_tests_that_it_names_exist():
    named = set(goals())
    assert len(named) > 40
    for name in named:
        file, _, test = name.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert not test or re.search(rf"^def {test}\(", text, re.MULTILINE), name
