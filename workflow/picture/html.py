"""A diagram as HTML for a notebook: the picture, and the outputs as a table."""

from __future__ import annotations

from .diagram import Diagram
from .markup import safe, table
from .svg import to_svg
from .text import to_text

# A picture of more boxes is illegible, but a text tree can be read and searched.
_MOST_BOXES = 200
_STYLE = "<style>.outputs td { text-align: left; padding: 2px 12px 2px 0 }</style>"


def to_html(diagram: Diagram) -> str:
    """The diagram, and a table of the items in its last box to fold out.

    Example:
        >>> from workflow.picture import Box, Item
        >>> to_html(Diagram("Workflow", [Box("Output", items=[Item("<b>", "int64")])], [])).count("<b>")
        0
    """
    last = diagram.boxes[-1]
    rows = table((item.name, item.type, item.note) for item in last.items)
    summary = safe(f"{last.title}: {len(last.items)} {diagram.noun}")
    outputs = f'{_STYLE}<details class="outputs"><summary>{summary}</summary>{rows}</details>'
    if len(diagram.boxes) > _MOST_BOXES:
        picture = f"<pre>{safe(to_text(diagram), lines=True)}</pre>"
    else:
        picture = f'<div style="overflow-x: auto">{to_svg(diagram)}</div>'
    return f"<div>{picture}{outputs if last.items else ''}</div>"
