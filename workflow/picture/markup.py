"""Markup that pictures, curves and reports share: escaped texts, images and tables.

By hand, since a page is one string without scripts, fonts or other files, also in a notebook
without a network: docs/decisions/0019-what-libraries-do.md says what libraries would need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from .diagram import printable

# The font of a chart, as attributes of its image.
FONT = ' font-family="sans-serif" font-size="12"'


def safe(text: str, *, lines: bool = False) -> str:
    """Text for XML, which forbids most control characters even as escapes.

    Args:
        text: any text.
        lines: whether to keep line breaks; otherwise they are written as escapes.

    Example:
        >>> safe("a < b")
        'a &lt; b'
    """
    return "\n".join(escape(printable(part)) for part in (text.split("\n") if lines else [text]))


def image(width: float, height: float, label: str, content: str, attributes: str = "") -> str:
    """An SVG image as a complete document.

    Args:
        width: in pixels.
        height: in pixels.
        label: a description of it, for screen readers.
        content: its elements.
        attributes: further attributes of the image, as markup.
    """
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} aria-label="{safe(label)}"'
        f"{attributes}>{content}</svg>"
    )


def words(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    """A text of a chart, as an element of an SVG image.

    Args:
        x: in pixels, of the point that `anchor` names.
        y: of the text's base line.
        text: any text.
        anchor: "start", "middle" or "end".
        more: further attributes, as markup.
    """
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{safe(text)}</text>'


def table(
    rows: Iterable[Sequence[str]], head: Sequence[str] = (), marked: Collection[int] = ()
) -> str:
    """Texts as an HTML table that a narrow page can scroll.

    Args:
        rows: one text for each cell.
        head: titles of the columns.
        marked: indexes of the rows with a red background.

    Example:
        >>> table([["a", "<b>"]]).count("&lt;b&gt;")
        1
    """
    lines = [f"<tr>{''.join(f'<th>{safe(t)}</th>' for t in head)}</tr>"] if any(head) else []
    for number, row in enumerate(rows):
        style = ' style="background:#cf222e33"' if number in marked else ""
        lines.append(f"<tr{style}>{''.join(f'<td>{safe(cell)}</td>' for cell in row)}</tr>")
    wide = "overflow-x: auto; overflow-wrap: normal"
    return f'<div style="{wide}"><table>{"".join(lines)}</table></div>'
