"""Objects that draw themselves: in a terminal, in a notebook, into a file."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from typing import TextIO

from .diagram import Diagram
from .html import to_html
from .svg import to_svg
from .text import to_text


class Drawn(ABC):
    """Base of classes that have a diagram.

    Example:
        >>> from workflow.picture import Box
        >>> class Empty(Drawn):
        ...     def diagram(self):
        ...         return Diagram("Empty", [Box("Output")], [])
        >>> print(Empty())
        Output
    """

    @abstractmethod
    def diagram(self) -> Diagram:
        """The diagram to draw."""

    def __str__(self) -> str:
        return to_text(self.diagram(), encoding=_encoding(sys.stdout))

    def show(self, file: TextIO | None = None) -> None:
        """Print the picture as text, as wide as the terminal.

        Args:
            file: the output file; the standard output by default.
        """
        out = sys.stdout if file is None else file
        width = max(shutil.get_terminal_size().columns, 40)
        print(to_text(self.diagram(), width=width, encoding=_encoding(out)), file=out)

    def to_svg(self) -> str:
        """The picture as the text of an SVG image, for a file or a page."""
        return to_svg(self.diagram())

    def _repr_html_(self) -> str:
        return to_html(self.diagram())


def _encoding(file: TextIO | None) -> str:
    return getattr(file, "encoding", None) or "utf-8"
