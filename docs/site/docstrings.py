"""Docstrings as the reference reads them: griffe's sections, and no others by accident."""

from __future__ import annotations

import re
from typing import Any

import griffe

# Griffe shows doctests as code in "Examples:" alone.
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
# A paragraph such as "Ids: 0 is padding, ..." with indented lines below is text; griffe would take
# its first line as the title of a box.
PARAGRAPH = re.compile(r"^([A-Z][\w ]*: +\S.*\n)((?: {4,}\S.*\n?)+)", re.MULTILINE)


def plain(text: str) -> str:
    r"""A docstring's text in the form that griffe shows best.

    Example:
        >>> plain("Ids: 0 is padding,\n    1 null.")
        'Ids: 0 is padding,\n1 null.'
    """
    text = EXAMPLE.sub("Examples:", text)
    return PARAGRAPH.sub(lambda found: found[1] + re.sub(r"(?m)^ +", "", found[2]), text)


class PlainDocstrings(griffe.Extension):
    """An extension of griffe that changes each docstring's text before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)
