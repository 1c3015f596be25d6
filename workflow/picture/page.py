"""A page of its own around a report, in the light or dark colours that its reader prefers."""

from __future__ import annotations

from .markup import safe

_STYLE = """
:root { color-scheme: light dark }
body { margin: 1.5rem; background: #fff; color: #1b1f24 }
@media (prefers-color-scheme: dark) { body { background: #0f1215; color: #e6e8eb } }
"""


def as_page(title: str, body: str) -> str:
    """A page without other files.

    Example:
        >>> as_page("a<b", "").count("a&lt;b")
        1
    """
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{_STYLE}</style>"
        f"<body>{body}</body></html>\n"
    )
