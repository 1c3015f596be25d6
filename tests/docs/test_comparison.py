"""The comparison claims nothing that no test shows."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "comparison.md"
ROW = re.compile(r"^\| *(\d+) *\|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows():
    """The cells of each row by its number, in the order of the page."""
    return [
        (int(number), [cell.strip() for cell in cells.split(" | ")])
        for number, cells in ROW.findall(PAGE.read_text())
    ]


@cache
def defined_in(path):
    """The names of the tests that a file defines."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def answer(cell):
    """The answer at the beginning of a cell, before its explanation."""
    return re.split(r"[:;,]", cell)[0]


def test_every_feature_has_a_row():
    assert [number for number, _ in rows()] == list(range(1, 100))
    guides = "".join(guide.read_text() for guide in PAGE.parent.glob("guide/*.md"))
    assert set(re.findall(r"(\d+) features", guides)) == {str(len(rows()))}


@pytest.mark.parametrize(("number", "cells"), rows(), ids=lambda value: str(value)[:40])
def test_a_row_says_yes_no_or_in_part_and_yes_names_a_test(number, cells):
    feature, *answers, shown = cells
    assert feature
    assert len(answers) == 3
    assert {answer(cell) for cell in answers} <= {"yes", "no", "in part"}
    ours = answers[-1]
    assert ours != "in part", "it must say what is missing"
    assert bool(TEST.search(shown)) >= (answer(ours) == "yes"), f"row {number} is not shown"
    assert not TEST.sub("", shown).replace("<br>", "").strip(), "nothing but tests is named"


def test_every_reference_and_data_set_is_named():
    section = PAGE.read_text().partition("## What the tests compare with")[2]
    named = {path for path, _ in TEST.findall(section)}
    for folder in ("reference", "real_data"):
        files = {
            str(file.relative_to(ROOT)) for file in (ROOT / "tests" / folder).glob("test_*.py")
        }
        assert files <= named, folder


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PAGE.read_text()))))
def test_a_named_test_exists(path, name):
    assert (ROOT / path).is_file(), f"no file {path}"
    assert name in defined_in(path), f"{path} has no test {name}"
