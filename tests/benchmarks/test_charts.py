"""Charts of docs/benchmarks.md: drawn from its tables, and in the repository as drawn."""

import re
from xml.etree import ElementTree as ET

import pytest

from benchmarks import charts

SAMPLE = """# Page

## Speed

| | rows/s | with a note | time, memory | text | mixed |
|---|---|---|---|---|---|
| ours, fast | **1,500** | **3.0x** (2.9 to 3.1) | 1.0 / 2.5 | fast | 3 s |
| by hand | 500 | - | 0.5 / - | slow | 3 ms |
| Merlin | | 1.5x | 2.0 / 5.0 | 7 | 4 s |

| only | words |
|---|---|
| a | b |
"""


def bars(svg):
    """The bars of a chart, from the left of the page, with their colours."""
    root = ET.fromstring(svg)  # noqa: S314 - our own
    found = [e for e in root if e.tag.endswith("rect") and e.get("x")]
    return [(float(e.get("x")), float(e.get("width")), e.get("fill")) for e in found]


def test_bars_are_as_long_as_the_numbers_of_their_column():
    (table,) = charts.tables(SAMPLE)
    assert table.name == "speed-1"
    assert table.labels == ["ours, fast", "by hand", "Merlin"]
    titles = ["rows/s", "with a note", "time, memory, 1st", "time, memory, 2nd"]
    assert [panel.title for panel in table.panels] == titles
    made = bars(charts.chart(table))
    # Of each column its greatest number fills the panel, and a missing one has no bar.
    expected = [1, 500 / 1500, 1, 0.5, 0.5, 0.25, 1, 0.5, 1]
    most = max(width for _, width, _ in made)
    assert [width / most for _, width, _ in made] == pytest.approx(expected, abs=0.002)
    assert made[0][2] != made[1][2], "what is not ours is grey"
    assert ">1,500</text>" in charts.chart(table)
    assert ">3.0x</text>" in charts.chart(table)


def test_a_page_with_links_gets_no_second_ones():
    once = charts.with_links(SAMPLE)
    assert once.count("(pictures/benchmarks/speed-1.svg)") == 1
    assert charts.with_links(once) == once
    assert re.sub(r"\n<details.*?</details>\n", "", once, flags=re.DOTALL) == SAMPLE


def test_the_charts_in_the_repository_are_those_of_the_page():
    text = charts.PAGE.read_text()
    folder = charts.PAGE.parent / charts.FOLDER
    made = {f"{table.name}.svg": charts.chart(table) for table in charts.tables(text)}
    assert len(made) > 25
    advice = "python -m benchmarks.charts draws them anew"
    assert {file.name: file.read_text() for file in folder.iterdir()} == made, advice
    assert charts.with_links(text) == text, advice


def test_every_number_of_a_chart_stands_in_the_page():
    text = re.sub(r"[*`]", "", charts.PAGE.read_text())
    for table in charts.tables(text):
        for panel in table.panels:
            for shown, _ in panel.cells:
                assert shown in text
