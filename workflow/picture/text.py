"""A diagram as a tree of text, from the outputs down to the inputs.

`rich.tree` indents each step of a chain; here a chain stays at the margin
(docs/decisions/0019-what-libraries-do.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from .diagram import MORE, Arrow, Diagram, cut, in_one_line, printable, width_of


@dataclass(frozen=True)
class Strokes:
    """The characters for drawing a tree.

    Example:
        >>> ASCII.branch
        '|- '
    """

    branch: str
    last: str
    rail: str
    chain: str
    gives: str
    more: str


UNICODE = Strokes("\u251c\u2500 ", "\u2514\u2500 ", "\u2502  ", "\u2191 ", " \u2192 ", MORE)
ASCII = Strokes("|- ", "`- ", "|  ", "^ ", " -> ", "...")
# The fewest cells for a shortened list of items.
_LEAST = 40


def to_text(diagram: Diagram, *, width: int = 80, encoding: str = "utf-8") -> str:
    """The diagram as lines of text.

    The last box is the root. Below a box are its predecessors: a single one in a line that begins
    with an arrow, several ones each on a branch. A box with several successors has a number, and is
    drawn in full at its first occurrence.

    Args:
        diagram: the diagram to draw.
        width: the number of cells in a line.
        encoding: encoding of the output; ASCII is used if it lacks the line characters.

    Example:
        >>> from workflow.picture import Arrow, Box, Item
        >>> ids = [Item("userId", "int64")]
        >>> boxes = [Box("[userId]"), Box("Categorify"), Box("Output")]
        >>> print(to_text(Diagram("", boxes, [Arrow(0, 1, ids), Arrow(1, 2, ids)]), encoding="ascii"))
        Output
        ^ Categorify -> userId: int64
        ^ [userId] -> userId: int64
    """
    strokes = UNICODE if _encodes(encoding, UNICODE) else ASCII
    lines = list(_Tree(diagram, strokes, width).lines())
    # Other characters that the encoding lacks must not abort the program that prints them.
    text = "\n".join(lines) if strokes is UNICODE else "\n".join(lines).replace(MORE, ASCII.more)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _encodes(encoding: str, strokes: Strokes) -> bool:
    try:
        "".join(vars(strokes).values()).encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class _Entry:
    """A box to draw, with the prefix of its own line, and of the lines below it."""

    box: int
    arrow: Arrow | None
    first: str
    rest: str


class _Tree:
    def __init__(self, diagram: Diagram, strokes: Strokes, width: int) -> None:
        self._diagram, self._strokes, self._width = diagram, strokes, width
        self._incoming: list[list[Arrow]] = [[] for _ in diagram.boxes]
        leads_to = [0] * len(diagram.boxes)
        for arrow in diagram.arrows:
            self._incoming[arrow.end].append(arrow)
            leads_to[arrow.start] += 1
        shared = [box for box, count in enumerate(leads_to) if count > 1]
        self._numbers = {box: number for number, box in enumerate(shared, 1)}

    def lines(self) -> Iterator[str]:
        """The lines of all boxes, each drawn in full once."""
        drawn: set[int] = set()
        todo = [_Entry(len(self._diagram.boxes) - 1, None, "", "")]
        while todo:
            entry = todo.pop()
            yield from self._entry(entry)
            if entry.box not in drawn:
                drawn.add(entry.box)
                todo += self._below(entry)

    def _below(self, entry: _Entry) -> list[_Entry]:
        """The predecessors of a box, the first of them last."""
        arrows, strokes = self._incoming[entry.box], self._strokes
        if len(arrows) == 1:
            first = entry.rest + strokes.chain
            return [_Entry(arrows[0].start, arrows[0], first, entry.rest)]
        entries = []
        for number, arrow in enumerate(arrows, 1):
            is_last = number == len(arrows)
            first = entry.rest + (strokes.last if is_last else strokes.branch)
            rest = entry.rest + (" " * len(strokes.rail) if is_last else strokes.rail)
            entries.append(_Entry(arrow.start, arrow, first, rest))
        return entries[::-1]

    def _entry(self, entry: _Entry) -> Iterator[str]:
        box = self._diagram.boxes[entry.box]
        # If the tree is deeper than the line is wide, lines become wider.
        width = max(self._width, width_of(entry.first) + _LEAST)
        title = printable(f"{box.title}({box.detail})" if box.detail else box.title)
        number = self._numbers.get(entry.box)
        line = entry.first + title + (f" #{number}" if number else "")
        items = box.items if entry.arrow is None else entry.arrow.items
        if not items:
            yield cut(line, width)
            return
        line = cut(line, width - len(self._strokes.gives))
        below = entry.rest + " " * (len(entry.first) - len(entry.rest)) + self._strokes.gives
        whole = width_of(in_one_line(items, sys.maxsize))
        beside, under = (width - width_of(start) for start in (line + self._strokes.gives, below))
        if whole <= beside or (whole > under and beside >= _LEAST):
            yield line + self._strokes.gives + in_one_line(items, beside, self._diagram.noun)
            return
        yield line
        yield below + in_one_line(items, under, self._diagram.noun)
