"""Figures that a guide repeats are those of the benchmarks."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RUNTIMES = ("fused_onnx", "fused_tensorflow", "onnx", "tensorflow")


def measured(data, column):
    """A column of the chapter's first table of this data, in the order of the runtimes."""
    page = (DOCS / "benchmarks.md").read_text().partition("\n## Serving\n")[2]
    lines = page[page.index(f"\n{data}-like: ") :].partition("\n|")[2].splitlines()
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines[:8]]
    at = rows[0].index(column)
    return [float(next(row for row in rows if row[0] == name)[at]) for name in RUNTIMES]


def told(figure):
    """The numbers of a row of the table "Sizing", in the order of the runtimes."""
    page = (DOCS / "guide" / "operations.md").read_text()
    (value,) = re.findall(rf"^\| {figure}[^|]*\|([^|]*)\|", page, re.MULTILINE)
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", value)]


def test_processor_time_of_a_request():
    assert told("processor time of a request of one row") == measured("MovieLens", "server µs")
    assert told("the same, Criteo-like") == measured("Criteo", "server µs")


def test_rows_a_second_of_one_client():
    rows = [16_384 / seconds * 1000 for seconds in measured("MovieLens", "16,384")]
    assert told("rows a second of one client") == pytest.approx(rows, abs=500)
