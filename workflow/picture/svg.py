"""A diagram as SVG: one text without other files, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .diagram import Arrow, Diagram, Item, cut, printable, width_of
from .layout import Geometry, Point, layout
from .markup import image, safe

_CELL, _LINE, _PAD, _MARGIN = 7.3, 16.0, 8.0, 14.0
_BOX_CELLS, _BOX_ITEMS, _ARROW_CELLS, _ARROW_ITEMS, _TOOLTIP_ITEMS = 44, 12, 34, 3, 60
_STYLE = """
.picture text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1b1f24 }
.picture .title { font-weight: bold }
.picture .page { fill: #ffffff }
.picture .label, .picture .detail { fill: #57606a }
.picture rect { stroke-width: 1.2 }
.picture .input rect { fill: #e8f1fb; stroke: #4a7ebb }
.picture .step rect { fill: #faf4e3; stroke: #b08d3c }
.picture .output rect { fill: #e6f4ea; stroke: #4f9d69 }
.picture .way { fill: none; stroke: #8b95a1; stroke-width: 1.2 }
.picture .head { fill: #8b95a1 }
@media (prefers-color-scheme: dark) {
.picture text { fill: #e6e8eb }
.picture .page { fill: #16191d }
.picture .label, .picture .detail { fill: #a9b2bd }
.picture .input rect { fill: #1d2b3d; stroke: #6ea3e0 }
.picture .step rect { fill: #2d2817; stroke: #c8a859 }
.picture .output rect { fill: #1a3024; stroke: #6dbb87 }
}
"""


def to_svg(diagram: Diagram) -> str:
    """The diagram as the text of an SVG image.

    Boxes are in layers from the inputs, above, to the outputs. An arrow's items are written on it,
    the first few of many; all of them are in the tooltip.

    Example:
        >>> from workflow.picture import Box
        >>> to_svg(Diagram("One box", [Box("<script>")], [])).count("&lt;script&gt;")
        2
    """
    drawing = _Drawing(diagram)
    width, height = drawing.layout.width + 2 * _MARGIN, drawing.layout.height + 2 * _MARGIN
    content = (
        f'<style>{_STYLE}</style><rect class="page" width="100%" height="100%" rx="6"/>'
        f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">{"".join(drawing.parts())}</g>'
    )
    return image(width, height, diagram.name, content, ' class="picture"')


class _Block:
    """Lines of text at a position: a box, or the label of an arrow."""

    def __init__(
        self, lines: Sequence[tuple[str, str]], tooltip: str, kind: str, cells: int
    ) -> None:
        self.lines = [(cut(printable(text), cells), style) for text, style in lines]
        self.tooltip, self.kind = tooltip, kind
        self.size = (
            max((width_of(text) for text, _ in self.lines), default=1) * _CELL + 2 * _PAD,
            len(self.lines) * _LINE + _PAD,
        )

    def draw(self, place: Point) -> str:
        """The block with its upper left corner at a position."""
        x, y = place
        width, height = self.size
        box = (
            f'<rect width="{width:.1f}" height="{height:.1f}" rx="5"/>'
            if self.kind != "label"
            else ""
        )
        texts = "".join(
            f'<text class="{style}" x="{width / 2:.1f}" y="{(n + 1) * _LINE - 1:.1f}" '
            f'text-anchor="middle">{safe(text)}</text>'
            for n, (text, style) in enumerate(self.lines)
        )
        title = f"<title>{safe(self.tooltip, lines=True)}</title>" if self.tooltip else ""
        return (
            f'<g class="{self.kind}" transform="translate({x:.1f} {y:.1f})">{title}{box}{texts}</g>'
        )


class _Drawing:
    """The boxes and labels of a diagram, with positions."""

    def __init__(self, diagram: Diagram) -> None:
        self.blocks = [_box(diagram, number) for number in range(len(diagram.boxes))]
        self._boxes = len(self.blocks)
        ways: list[tuple[int, int]] = []
        labels: dict[tuple[int, tuple[Item, ...]], int] = {}
        for arrow in sorted(diagram.arrows, key=lambda a: (a.start, a.end)):
            if not arrow.items:
                ways.append((arrow.start, arrow.end))
                continue
            key = arrow.start, tuple(arrow.items)
            if key not in labels:
                labels[key] = len(self.blocks)
                self.blocks.append(_label(arrow, diagram.noun))
                ways.append((arrow.start, labels[key]))
            ways.append((labels[key], arrow.end))
        self.ways = list(dict.fromkeys(ways))
        self.layout = self._laid_out()

    def _laid_out(self) -> Geometry:
        """The layout of boxes and labels, sorted so that arrows lead forward."""
        starts = {end: start for start, end in self.ways if end >= self._boxes}
        order = sorted(range(len(self.blocks)), key=lambda b: (starts.get(b, b), b >= self._boxes))
        rank = {block: n for n, block in enumerate(order)}
        ways = [(rank[start], rank[end]) for start, end in self.ways]
        geometry = layout([self.blocks[b].size for b in order], ways)
        places = [geometry.places[rank[b]] for b in range(len(self.blocks))]
        return Geometry(places, geometry.ways, geometry.width, geometry.height)

    def parts(self) -> Iterator[str]:
        """The elements, with arrows below."""
        for (_, end), way in zip(self.ways, self.layout.ways, strict=True):
            yield _way(way, has_head=end < self._boxes)
        for block, place in zip(self.blocks, self.layout.places, strict=True):
            yield block.draw(place)


def _box(diagram: Diagram, number: int) -> _Block:
    box = diagram.boxes[number]
    lines = [(box.title, "title")] + ([(box.detail, "detail")] if box.detail else [])
    lines += [(text, "item") for text in _few(box.items, _BOX_ITEMS)]
    texts = (
        [printable(box.title), printable(box.detail)]
        if box.items
        else [printable(f"{box.title} {box.detail}")]
    )
    return _Block(lines, _tooltip([t for t in texts if t], box.items), box.kind, _BOX_CELLS)


def _label(arrow: Arrow, noun: str) -> _Block:
    count = [f"{len(arrow.items)} {noun}"] if len(arrow.items) > _ARROW_ITEMS else []
    lines = [(text, "label") for text in _few(arrow.items, _ARROW_ITEMS)]
    return _Block(lines, _tooltip(count, arrow.items), "label", _ARROW_CELLS)


def _few(items: Sequence[Item], most: int) -> list[str]:
    """Some items, one a line; of many items the first ones, the number of others, and the last."""
    if len(items) <= most:
        return [str(item) for item in items]
    first = [str(item) for item in items[: most - 2]]
    return [*first, f"\u2026 {len(items) - most + 1} more \u2026", str(items[-1])]


def _tooltip(start: Sequence[str], items: Sequence[Item]) -> str:
    lines = [*start, *(item.tooltip for item in items[:_TOOLTIP_ITEMS])]
    if len(items) > _TOOLTIP_ITEMS:
        lines.append(f"\u2026 {len(items) - _TOOLTIP_ITEMS} more")
    return "\n".join(lines)


def _way(points: Sequence[Point], *, has_head: bool) -> str:
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    head = f'<path class="head" d="M{x:.1f} {y:.1f}l-4 -8h8z"/>' if has_head else ""
    return f'<path class="way" d="{"".join(path)}"/>{head}'
