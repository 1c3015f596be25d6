"""A diagram as HTML for a notebook: the picture, and what comes out as a table."""

from __future__ import annotations

from html import escape

from .diagram import Diagram, Item, printable
from .svg import to_svg
from .text import to_text

# A picture of more boxes shows nothing; the text of the tree can be read and searched.
_MOST_BOXES = 200
_CELL = "text-align: left; padding: 2px 12px 2px 0"


def to_html(diagram: Diagram) -> str:
    """The diagram, and a table of the items in its last box to fold out.

    Example:
        >>> from workflow.picture import Box
        >>> to_html(Diagram("Workflow", [Box("Output", items=[Item("<b>", "int64")])], [])).count("<b>")
        0
    """
    last = diagram.boxes[-1]
    rows = "".join(map(_row, last.items))
    summary = escape(printable(f"{last.title}: {len(last.items)} {diagram.noun}"))
    table = f"<details><summary>{summary}</summary><table>{rows}</table></details>"
    if len(diagram.boxes) > _MOST_BOXES:
        picture = f"<pre>{escape(to_text(diagram))}</pre>"
    else:
        picture = f'<div style="overflow-x: auto">{to_svg(diagram)}</div>'
    return f"<div>{picture}{table if last.items else ''}</div>"


def _row(item: Item) -> str:
    cells = (item.name, item.type, item.note)
    return (
        "<tr>"
        + "".join(f'<td style="{_CELL}">{escape(printable(c))}</td>' for c in cells)
        + "</tr>"
    )
