"""Positions of the boxes of a graph without cycles, and the paths of its arrows.

A layered drawing: every arrow leads downwards, a few sweeps reduce the crossings of arrows, and
boxes are close above and below each other without overlapping.

Source: K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of Hierarchical System
Structures", 1981; the places within a layer by least squares under the order, which is isotonic
regression (pool adjacent violators). Graphviz is a binary, Mermaid a script from a network, and
grandalf draws wider (docs/decisions/0019-what-libraries-do.md).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
# Sweeps over all boxes and bends; fewer for large graphs, which would take minutes.
_SWEEPS, _EFFORT = 16, 20_000
_GAP_X, _GAP_Y, _BEND = 24.0, 22.0, 12.0
# The height of an arrow as a share of its width, at least.
_SLOPE = 0.08


@dataclass(frozen=True)
class Geometry:
    """The geometry of a drawing, in the unit of the sizes.

    Attributes:
        places: the upper left corner of each box.
        ways: for each arrow the points where it begins, passes other layers, and ends.
        width: width of the drawing.
        height: height of the drawing.

    Example:
        >>> layout([(40, 20)], []).width
        40.0
    """

    places: list[Point]
    ways: list[list[Point]]
    width: float
    height: float


def layout(sizes: Sequence[Point], arrows: Sequence[tuple[int, int]]) -> Geometry:
    """Place boxes of some sizes.

    Args:
        sizes: width and height of each box.
        arrows: from box to box by number, each to a later one.

    Example:
        >>> drawing = layout([(40, 20), (40, 20)], [(0, 1)])
        >>> drawing.places[0][1] < drawing.places[1][1]
        True
    """
    return _Drawing(sizes, arrows).finished()


class _Drawing:
    def __init__(self, sizes: Sequence[Point], arrows: Sequence[tuple[int, int]]) -> None:
        self.sizes = list(sizes)
        self.boxes = len(sizes)
        self.layer = _layers(len(sizes), arrows)
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        # Where an arrow passes a layer it occupies a position there, like a narrow box.
        self.chains = [self._chain(start, end) for start, end in arrows]
        self.rows: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for vertex, layer in enumerate(self.layer):
            self.rows[layer].append(vertex)
        self.x = [0.0] * len(self.sizes)
        self.bottoms: list[float] = []
        self._sweeps = max(2, min(_SWEEPS, _EFFORT // len(self.sizes))) if self.sizes else 0

    def _chain(self, start: int, end: int) -> list[int]:
        chain = [start]
        for layer in range(self.layer[start] + 1, self.layer[end]):
            chain.append(len(self.sizes))
            self.sizes.append((_BEND, 0.0))
            self.layer.append(layer)
            self.above.append([])
            self.below.append([])
        chain.append(end)
        for upper, lower in pairwise(chain):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        return chain

    def finished(self) -> Geometry:
        self._order()
        for _ in range(self._sweeps):
            for row in self.rows:
                self._place(row, self.above)
            # Upwards last: each box is then above its successors, and chains are straight.
            for row in self.rows[::-1]:
                self._place(row, self.below)
        left = min((self.x[v] - self.sizes[v][0] / 2 for row in self.rows for v in row), default=0)
        self.x = [x - left for x in self.x]
        tops, height = self._tops()
        places = [
            (self.x[b] - self.sizes[b][0] / 2, tops[self.layer[b]]) for b in range(self.boxes)
        ]
        width = max((self.x[v] + size[0] / 2 for v, size in enumerate(self.sizes)), default=0.0)
        return Geometry(places, self._ways(tops), width, height)

    def _order(self) -> None:
        """Sort each layer by the positions of neighbours, and keep the best of some sweeps."""
        best, fewest = [row[:] for row in self.rows], self._crossings()
        self._shares = {v: n / max(len(r) - 1, 1) for r in self.rows for n, v in enumerate(r)}
        for sweep in range(self._sweeps):
            if not fewest:
                break
            down = sweep % 2 == 0
            for row in self.rows if down else self.rows[::-1]:
                self._sort(row, self.above if down else self.below)
            if (crossings := self._crossings()) < fewest:
                best, fewest = [row[:] for row in self.rows], crossings
        self.rows = best

    def _sort(self, row: list[int], neighbours: list[list[int]]) -> None:
        place = self._shares
        row.sort(key=lambda v: _mean([place[n] for n in neighbours[v]], place[v]))
        place.update((v, n / max(len(row) - 1, 1)) for n, v in enumerate(row))

    def _crossings(self) -> int:
        place = {v: n for row in self.rows for n, v in enumerate(row)}
        total = 0
        for row in self.rows:
            ends: list[int] = []
            for vertex in row:
                targets = sorted(place[lower] for lower in self.below[vertex])
                total += sum(len(ends) - bisect_left(ends, target + 1) for target in targets)
                for target in targets:
                    insort(ends, target)
        return total

    def _place(self, row: list[int], neighbours: list[list[int]]) -> None:
        """Put each box as near to its neighbours' middle as the others in its layer allow."""
        middles = [_mean([self.x[n] for n in neighbours[v]], self.x[v]) for v in row]
        offsets = [0.0]
        for left, right in pairwise(row):
            offsets.append(offsets[-1] + (self.sizes[left][0] + self.sizes[right][0]) / 2 + _GAP_X)
        shifted = [middle - offset for middle, offset in zip(middles, offsets, strict=True)]
        for vertex, x, offset in zip(row, _isotonic(shifted), offsets, strict=True):
            self.x[vertex] = x + offset

    def _tops(self) -> tuple[list[float], float]:
        tops, gap, y = [], 0.0, 0.0
        for row in self.rows:
            tops.append(y)
            run = max((abs(self.x[v] - self.x[n]) for v in row for n in self.below[v]), default=0.0)
            gap = min(max(_GAP_Y, run * _SLOPE), _GAP_Y * 4)
            y += max(self.sizes[v][1] for v in row)
            self.bottoms.append(y)
            y += gap
        return tops, max(y - gap, 0.0)

    def _ways(self, tops: list[float]) -> list[list[Point]]:
        """Paths from the bottom of one box to the top of the other, each arrow at a separate point."""
        ways = []
        for chain in self.chains:
            start, *bends, end = chain
            points = [
                (
                    self._port(start, self.below, chain[1]),
                    tops[self.layer[start]] + self.sizes[start][1],
                )
            ]
            for bend in bends:
                layer = self.layer[bend]
                points += [(self.x[bend], tops[layer]), (self.x[bend], self.bottoms[layer])]
            points.append((self._port(end, self.above, chain[-2]), tops[self.layer[end]]))
            ways.append(points)
        return ways

    def _port(self, vertex: int, neighbours: list[list[int]], other: int) -> float:
        vertices = sorted(set(neighbours[vertex]), key=lambda v: (self.x[v], v))
        share = (vertices.index(other) + 1) / (len(vertices) + 1)
        return self.x[vertex] + self.sizes[vertex][0] * (share - 0.5)


def _layers(boxes: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box, as far down as its successors allow."""
    height = [0] * boxes
    for start, end in sorted(arrows, reverse=True):
        height[start] = max(height[start], height[end] + 1)
    top = max(height, default=0)
    return [top - h for h in height]


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _isotonic(values: Sequence[float]) -> list[float]:
    """The nearest non-decreasing values, by least squares."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    return [total / count for total, count in blocks for _ in range(count)]
