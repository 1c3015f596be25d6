"""Long texts as lines of a terminal."""

from __future__ import annotations

import textwrap


def folded(text: str, width: int = 80, indent: str = "  ") -> str:
    """A text broken between words; a longer word, such as a path, stays whole.

    Args:
        text: one or more lines.
        width: the columns of the terminal.
        indent: what a line that continues another one begins with.

    Example:
        >>> print(folded("workflow: a workflow that makes " + ", ".join(["price"] * 9)))
        workflow: a workflow that makes price, price, price, price, price, price, price,
          price, price
    """
    return "\n".join(
        textwrap.fill(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        for line in text.splitlines()
    )
