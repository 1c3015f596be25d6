"""Diagrams: boxes, and arrows between them that carry named items."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

MORE = "\u2026"


@dataclass(frozen=True)
class Item:
    """A named item in a box or on an arrow, such as a column.

    Attributes:
        name: its name.
        type: its type, drawn after a colon; may be empty.
        note: further facts about it, for the tooltip.

    Example:
        >>> str(Item("userId", "int64", "cardinality 12"))
        'userId: int64'
    """

    name: str
    type: str = ""
    note: str = ""

    def __str__(self) -> str:
        return printable(f"{self.name}: {self.type}" if self.type else self.name)

    @property
    def tooltip(self) -> str:
        """All facts about it."""
        return f"{self}  {printable(self.note)}".rstrip()


@dataclass(frozen=True)
class Box:
    """A step, or a source or target of items.

    Attributes:
        title: its name.
        detail: a line below the title, such as its settings.
        items: its content, drawn in the box.
        kind: "input", "step" or "output", which determines its colour.

    Example:
        >>> Box("Categorify", "dtype='int32'").kind
        'step'
    """

    title: str
    detail: str = ""
    items: Sequence[Item] = ()
    kind: str = "step"


@dataclass(frozen=True)
class Arrow:
    """An arrow from one box to another, by their numbers.

    Attributes:
        start: the box where it starts.
        end: the box where it ends, after `start`.
        items: the items that it carries.

    Example:
        >>> str(Arrow(0, 1, [Item("userId", "int64")]).items[0])
        'userId: int64'
    """

    start: int
    end: int
    items: Sequence[Item] = ()


@dataclass(frozen=True)
class Diagram:
    """A graph without cycles: every arrow leads from a box to a later one.

    Attributes:
        name: the subject, in a few words.
        boxes: in an order in which arrows lead forward; the last is the root of the text tree.
        arrows: the arrows between them.
        noun: a plural for many items.

    Example:
        >>> ids = (Item("userId", "int64"),)
        >>> diagram = Diagram("Ids", [Box("[userId]"), Box("Categorify")], [Arrow(0, 1, ids)])
        >>> str(diagram.arrows[0].items[0])
        'userId: int64'
    """

    name: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    noun: str = "columns"

    def __post_init__(self) -> None:
        for arrow in self.arrows:
            if not 0 <= arrow.start < arrow.end < len(self.boxes):
                raise ValueError(
                    f"Expected an arrow to a later one of {len(self.boxes)} boxes. "
                    f"Received: {arrow.start} to {arrow.end}."
                )


def printable(text: str) -> str:
    """The text in one line, with invisible characters written as escapes.

    Example:
        >>> print(printable("a" + chr(0) + "b").replace(chr(92), "/"))
        a/x00b
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def width_of(text: str) -> int:
    """The number of terminal cells of a text: Chinese characters take two, combining ones none.

    Example:
        >>> width_of("id"), width_of("\u756a\u53f7")
        (2, 4)
    """
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def cut(text: str, width: int) -> str:
    """The text, truncated if it is too long.

    Example:
        >>> cut("Categorify", 6)
        'Categ\u2026'
    """
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return text + MORE


def in_one_line(items: Sequence[Item], width: int, noun: str = "columns") -> str:
    """Items side by side; of many items the first ones and the last.

    Example:
        >>> in_one_line([Item(f"C{n}") for n in range(1, 27)], 28)
        '26 columns: C1, C2, \u2026 C26'
    """
    texts = [str(item) for item in items]
    whole = ", ".join(texts)
    if len(texts) < 2 or width_of(whole) <= width:
        return cut(whole, width)
    start, end = f"{len(texts)} {noun}: ", f"{MORE} {texts[-1]}"
    room = width - width_of(start) - width_of(end)
    for text in texts[:-2]:
        if (room := room - width_of(text) - 2) < 0:
            break
        start += text + ", "
    return cut(start + end, width)
