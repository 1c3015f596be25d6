"""A chart of each table in docs/benchmarks.md, from the table's own numbers.

    python -m benchmarks.charts

It writes docs/pictures/benchmarks/*.svg, and a link to each behind its table. Bars of one column have one scale,
which begins at 0; a column whose cells have different units, or text, is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workflow.picture.markup import image, safe

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
FOLDER = "pictures/benchmarks"
# "**6.92x** (6.89 to 6.94)", "0.34 s", "1,000".
_NUMBER = re.compile(r"(-?[\d,]*\.?\d+) ?(x|s|ms|h|)(?: \(.*\))?")
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_LINK = re.compile(r"\n<details[^>]*>\n<summary>Chart</summary>\n\n!\[.*\]\(.*\)\n\n</details>\n")
_PANELS, _PANEL, _ROW, _LETTER, _LONGEST = 3, 190, 20, 6.2, 48
_FONT = ' font-family="sans-serif" font-size="12"'
_OURS, _OTHER = "#0072b2", "#9aa5ad"


@dataclass(frozen=True)
class Panel:
    """A column of numbers of one unit.

    Attributes:
        title: the column's.
        cells: each row's text and number; no number if it has none.
    """

    title: str
    cells: list[tuple[str, float | None]]


@dataclass(frozen=True)
class Table:
    """A table of the page.

    Attributes:
        name: its section and its place there, such as `serving-2`.
        end: the place behind it in the page's text.
        labels: a text for each row.
        panels: its columns of numbers.
    """

    name: str
    end: int
    labels: list[str]
    panels: list[Panel]


def tables(text: str) -> Iterator[Table]:
    """The tables of a page that have a column of numbers."""
    counted: Counter[str] = Counter()
    for found in _TABLE.finditer(text):
        section = re.findall(r"^## (.+)$", text[: found.start()], re.MULTILINE)[-1]
        name = re.sub(r"\W+", "-", section.lower())
        counted[name] += 1
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()
        ]
        plain = [[re.sub(r"[*`]", "", cell) for cell in row] for row in rows]
        columns = [list(_panels(t, [row[n] for row in plain])) for n, t in enumerate(head) if n]
        if any(columns):
            first = 1 + next(n for n, panels in enumerate(columns) if panels)
            made = [panel for panels in columns for panel in panels]
            yield Table(f"{name}-{counted[name]}", found.end(), _labels(plain, first), made)


def _labels(rows: list[list[str]], numbers: int) -> list[str]:
    """The first columns of the rows, as many as tell them apart, and none of the numbers."""
    distinct = (n for n in range(1, numbers) if len({tuple(row[:n]) for row in rows}) == len(rows))
    width = next(distinct, numbers)
    return [", ".join(cell for cell in row[:width] if cell)[:_LONGEST] for row in rows]


def _panels(title: str, column: list[str]) -> Iterator[Panel]:
    """A column as a panel, or one of pairs "1.03 / 0.99" as two."""
    halves = [cell.split(" / ") if " / " in cell else [cell] for cell in column]
    parts = 2 if all(len(half) == 2 for half in halves) else 1
    for part in range(parts):
        cells = [(half[part] if len(half) == parts else "/").strip() for half in halves]
        found = [_NUMBER.fullmatch(cell) for cell in cells]
        wrong = [c for c, f in zip(cells, found, strict=True) if not f and c not in ("", "-")]
        numbers = [f for f in found if f]
        if not wrong and len(numbers) > 1 and len({f[2].strip("x") for f in numbers}) == 1:
            values = [float(f[1].replace(",", "")) if f else None for f in found]
            half = f"{title}, {('1st', '2nd')[part]}" if parts == 2 else title
            yield Panel(half, [(f[0] if f else "", v) for f, v in zip(found, values, strict=True)])


def chart(table: Table) -> str:
    """A table as an SVG document: a panel of bars for each column, three in a line."""
    left = max(len(label) for label in table.labels) * _LETTER + 16
    height = len(table.labels) * _ROW + 44
    lines = -(-len(table.panels) // _PANELS)
    width = left + min(len(table.panels), _PANELS) * _PANEL
    parts = ['<rect width="100%" height="100%" fill="#ffffff"/>']
    for number, panel in enumerate(table.panels):
        top = height * (number // _PANELS)
        if number % _PANELS == 0:
            parts += [_text(left - 8, top + _y(n), t, "end") for n, t in enumerate(table.labels)]
        parts += _bars(panel, table.labels, left + number % _PANELS * _PANEL, top)
    return image(width, height * lines, f"Chart of {table.name}", "\n".join(parts), _FONT) + "\n"


def _bars(panel: Panel, labels: list[str], left: float, top: float) -> Iterator[str]:
    yield _text(left, top + 20, panel.title or "ratio", "start", ' font-weight="bold"')
    most = max((value for _, value in panel.cells if value is not None), default=0.0)
    for number, (text, value) in enumerate(panel.cells):
        if value is None:
            continue
        short = text.partition(" (")[0]
        length = max(value, 0.0) / (most or 1.0) * (_PANEL - 90)
        colour = _OTHER if _is_other(labels[number]) and "ours" not in panel.title else _OURS
        box = f'x="{left:.1f}" y="{top + _y(number) - 11:.1f}" width="{length:.1f}" height="14"'
        yield f'<rect {box} fill="{colour}"/>'
        yield _text(left + length + 5, top + _y(number), short, "start")


def _is_other(label: str) -> bool:
    """Whether a row shows something other than this project's code."""
    others = r"by hand|NVTabular|Merlin|Keras|tf\.data|TFRecord|TensorFlow's|pyarrow|floor|decode|yardstick|naive"
    return bool(re.search(others, label)) and "ours" not in label


def _y(number: int) -> float:
    return 46 + number * _ROW


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{safe(text)}</text>'


def with_links(text: str) -> str:
    """The page with a chart behind each table: the first in view, the others to fold out."""
    text = _LINK.sub("", text)
    for number, table in reversed(list(enumerate(tables(text)))):
        shown = " open" if number == 0 else ""
        link = (
            f'\n<details markdown="1"{shown}>\n<summary>Chart</summary>\n\n'
            f"![Chart of the table]({FOLDER}/{table.name}.svg)\n\n</details>\n"
        )
        text = text[: table.end] + link + text[table.end :]
    return text


def write(page: Path) -> None:
    """Write the charts of a page beside it, and their links into it."""
    folder = page.parent / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    text = page.read_text()
    charts = {f"{table.name}.svg": chart(table) for table in tables(text)}
    for old in folder.glob("*.svg"):
        if old.name not in charts:
            old.unlink()
    for name, picture in charts.items():
        (folder / name).write_text(picture)
    page.write_text(with_links(text))


if __name__ == "__main__":
    write(PAGE)
