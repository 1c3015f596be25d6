"""Charts of docs/benchmarks.md: drawn from its tables, and in the repository as drawn."""

import os
import re
import sys
from xml.etree import ElementTree as ET

import pytest

from benchmarks import charts, measure

SAMPLE = """# Page

## Speed

| | rows/s | with a note | cost: time / memory | text | mixed |
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
    titles = ["rows/s", "with a note", "cost: time / memory"]
    assert [panel.title for panel in table.panels] == titles
    made = bars(charts.chart(table))
    # Of each column its greatest number fills the panel, and a missing one has no bar.
    expected = [1, 500 / 1500, 1, 0.5, 0.5, 0.25, 1]
    most = max(width for _, width, _ in made)
    assert [width / most for _, width, _ in made] == pytest.approx(expected, abs=0.002)
    assert made[0][2] != made[1][2], "what is not ours is grey"
    assert ">1,500</text>" in charts.chart(table)
    assert ">3.0x</text>" in charts.chart(table)


def drawn(head, *rows):
    return charts.chart(charts.table_of("sample", head, rows))


def test_the_bar_of_a_cell_is_its_first_number_and_negative_ones_end_at_zero():
    table = charts.table_of("sample", ["", "ms"], [["a", "1 / 2"], ["b", "-1 / 4"], ["c", "- / 3"]])
    (panel,) = table.panels
    assert panel.cells == [("1 / 2", 1.0), ("-1 / 4", -1.0), ("", None)]
    (up, up_width, _), (down, down_width, _) = bars(charts.chart(table))
    assert up_width == down_width
    assert down + down_width == pytest.approx(up)


def test_exponents_have_a_line_at_one():
    svg = drawn(["", "exponent: time / memory"], ["a", "2.0 / 0.5"], ["b", "1.0 / 0.25"])
    (place,) = [float(x) for x in re.findall(r'd="M([\d.]+) ', svg)]
    ends = [left + width for left, width, _ in bars(svg)]
    assert place == pytest.approx(ends[1], abs=0.2), "where the bar of 1.0 ends"
    below = drawn(["", "exponent"], ["a", "0.5"], ["b", "0.25"])
    (place,) = [float(x) for x in re.findall(r'd="M([\d.]+) ', below)]
    assert place > max(left + width for left, width, _ in bars(below)), "beyond all that are less"
    assert "stroke-dasharray" not in drawn(["", "ms"], ["a", "2"], ["b", "1"])


def test_rows_of_the_same_words_are_told_apart_by_their_counts():
    table = charts.table_of(
        "sample",
        ["", "rows", "s"],
        [["fit", "10", "1"], ["fit", "100", "2"], ["x" * 60 + " y", "1", "3"]],
    )
    assert table.labels[:2] == ["fit, 10", "fit, 100"]
    assert table.labels[2].endswith("\u2026")


def test_what_a_benchmark_prints_it_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "CHARTS", tmp_path / "charts")
    monkeypatch.setattr(sys, "argv", ["benchmarks/loader.py"])
    rows = [{"": "ours", "rows/s": 24_000.0}, {"": "by hand", "rows/s": 12_000.0}]
    measure.show("Batch 65,536, shuffled", iter(rows))
    said = capsys.readouterr().out
    (file,) = (tmp_path / "charts").iterdir()
    assert file.name == "loader-batch-65-536-shuffled.svg"
    assert f"Chart: {os.path.relpath(file)}" in said
    ours, other = bars(file.read_text())
    assert ours[1] == pytest.approx(2 * other[1], abs=0.1)
    measure.show("Words", [{"": "a", "b": "c"}])
    assert "Chart:" not in capsys.readouterr().out


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
