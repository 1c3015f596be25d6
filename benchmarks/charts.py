"""A chart of each table in docs/benchmarks.md, from the table's own numbers.

    python -m benchmarks.charts

It writes docs/pictures/benchmarks/*.svg, and a link to each behind its table. Bars of one column have one scale,
which includes 0; a column whose cells have different units, or text, is left out. Of cells such as "1.03 / 0.99" the
bar is the first number; exponents have a line at 1.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workflow.picture.markup import FONT, image, words

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
FOLDER = "pictures/benchmarks"
# "6.92x (6.89 to 6.94)", "0.34 s", "1,000", "1.03 / 0.99".
_NUMBER = re.compile(r"([+-]?[\d,]*\.?\d+) ?(x|s|ms|h|)(?: \(.*\)| / .*)?")
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_LINK = re.compile(r"\n<details[^>]*>\n<summary>Chart</summary>\n\n!\[.*\]\(.*\)\n\n</details>\n")
_MISSING = ("", "-")
_PANELS, _PANEL, _BAR, _ROW, _TOP, _LETTER, _LONGEST, _TITLE = 3, 190, 100, 20, 62, 6.2, 48, 26
# A number is legible on a line.
_HALO = ' paint-order="stroke" stroke="#ffffff" stroke-width="3"'
# Columns that say what a row is, where its words are those of another row.
_COUNTS = ("rows", "columns", "files, row groups")
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
        if table := table_of(f"{name}-{counted[name]}", head, rows, found.end()):
            yield table


def table_of(
    name: str, head: Sequence[str], rows: Sequence[Sequence[str]], end: int = 0
) -> Table | None:
    """A table from its cells, or None if no column has numbers.

    Args:
        name: its name.
        head: the titles of its columns, of which the first has labels.
        rows: the cells, as Markdown.
        end: the place behind it in a page's text.

    Example:
        >>> table_of("speed", ["", "rows/s"], [["ours", "1,500"], ["theirs", "500"]]).panels
        [Panel(title='rows/s', cells=[('1,500', 1500.0), ('500', 500.0)])]
    """
    plain = [[re.sub(r"[*`]", "", cell) for cell in row] for row in rows]
    panels = {n: _panel(t, [row[n] for row in plain]) for n, t in enumerate(head) if n}
    made = {n: panel for n, panel in panels.items() if panel}
    return Table(name, end, _labels(head, plain, min(made)), [*made.values()]) if made else None


def _labels(head: Sequence[str], rows: list[list[str]], numbers: int) -> list[str]:
    """The first columns of the rows, as many as tell them apart, and none of the numbers but counts."""
    most = numbers + (numbers < len(head) and head[numbers] in _COUNTS)
    distinct = (n for n in range(1, most + 1) if len({tuple(row[:n]) for row in rows}) == len(rows))
    width = next(distinct, numbers)
    every = (", ".join(cell for cell in row[:width] if cell) for row in rows)
    return [textwrap.shorten(label, _LONGEST, placeholder="\u2026") for label in every]


def _panel(title: str, column: list[str]) -> Panel | None:
    """A column as a panel, where its cells are numbers of one unit, or missing."""
    found = [_NUMBER.fullmatch(cell) for cell in column]
    numbers = [match for match in found if match]
    texts = [
        c for c, f in zip(column, found, strict=True) if not f and c.split(" / ")[0] not in _MISSING
    ]
    if texts or len(numbers) < 2 or len({match[2].strip("x") for match in numbers}) > 1:
        return None
    return Panel(title, [(f[0], float(f[1].replace(",", ""))) if f else ("", None) for f in found])


def chart(table: Table) -> str:
    """A table as an SVG document: a panel of bars for each column, three in a line."""
    left = max(len(label) for label in table.labels) * _LETTER + 16
    height = len(table.labels) * _ROW + _TOP - 2
    lines = -(-len(table.panels) // _PANELS)
    width = left + min(len(table.panels), _PANELS) * _PANEL
    parts = ['<rect width="100%" height="100%" fill="#ffffff"/>']
    for number, panel in enumerate(table.panels):
        top = height * (number // _PANELS)
        if number % _PANELS == 0:
            parts += [words(left - 8, top + _y(n), t, "end") for n, t in enumerate(table.labels)]
        parts += _bars(panel, table.labels, left + number % _PANELS * _PANEL, top)
    return image(width, height * lines, f"Chart of {table.name}", "\n".join(parts), FONT) + "\n"


def _bars(panel: Panel, labels: list[str], left: float, top: float) -> Iterator[str]:
    lines = textwrap.wrap(panel.title or "ratio", _TITLE)[:2]
    for number, line in enumerate(reversed(lines)):
        yield words(left, top + _TOP - 28 - 14 * number, line, "start", ' font-weight="bold"')
    is_exponent = panel.title.startswith("exponent")
    known = [value for _, value in panel.cells if value is not None]
    least, most = min(0.0, *known), max(1.0 if is_exponent else 0.0, *known)
    scale = _BAR / (most - least or 1.0)
    zero = left - least * scale
    if is_exponent:  # what grows as its data does ends here
        x, bottom = zero + scale, top + _y(len(labels) - 1) + 6
        yield f'<path d="M{x:.1f} {top + _TOP - 12}V{bottom}" stroke="#d55e00" stroke-dasharray="3 2"/>'
        yield words(x, top + _TOP - 14, "1", "middle", ' fill="#d55e00"')
    for number, (text, value) in enumerate(panel.cells):
        if value is None:
            continue
        start, length = zero + min(value, 0.0) * scale, abs(value) * scale
        colour = _OTHER if _is_other(labels[number]) and "ours" not in panel.title else _OURS
        box = f'x="{start:.1f}" y="{top + _y(number) - 11:.1f}" width="{length:.1f}" height="14"'
        yield f'<rect {box} fill="{colour}"/>'
        place = max(start + length, zero) + 5
        yield words(place, top + _y(number), text.partition(" (")[0], "start", _HALO)


def _is_other(label: str) -> bool:
    """Whether a row shows something other than this project's code."""
    others = r"by hand|NVTabular|Merlin|Keras|tf\.data|TFRecord|TensorFlow's|pyarrow|floor|decode|yardstick|naive"
    return bool(re.search(others, label)) and "ours" not in label


def _y(number: int) -> float:
    return _TOP + number * _ROW


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
