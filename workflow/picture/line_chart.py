"""A line chart as SVG, for curves of a few hundred points.

By hand: matplotlib would be 76 MB and 1.7 s of imports, and altair asks a network for its script
(docs/decisions/0019-what-libraries-do.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .markup import FONT, image, words

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 36, 72, 52
_LETTER = 7  # pixels at most, on average
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")


def line_chart(curves: Mapping[str, Points], title: str, x_title: str, y_title: str) -> str:
    """Curves in one chart, with axes and a legend.

    Args:
        curves: name -> points (x, y); points that are not finite are left out.
        title: text above the chart.
        x_title: text below it.
        y_title: text above the vertical axis.

    Returns:
        An SVG document of 640 by 360, which needs neither font nor script.

    Example:
        >>> line_chart({"loss": [(0, 0.7), (1, 0.5)]}, "Loss", "epoch", "loss")[:4]
        '<svg'
    """
    finite_curves = {
        name: [p for p in points if all(map(math.isfinite, p))] for name, points in curves.items()
    }
    every = [point for points in finite_curves.values() for point in points] or [(0.0, 0.0)]
    xs, ys = (_Axis(values) for values in zip(*every, strict=True))
    parts = [
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        words(_LEFT, 20, title, "start", ' font-size="15"'),
        words((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 12, x_title, "middle"),
        words(8, _TOP - 10, y_title),
    ]
    for value in ys.ticks:
        place = _y(ys.share(value))
        parts.append(_line([(_LEFT, place), (WIDTH - _RIGHT, place)], "#dddddd", 1))
        parts.append(words(_LEFT - 8, place + 4, ys.label(value), "end"))
    parts += [
        words(_x(xs.share(value)), HEIGHT - _BOTTOM + 18, xs.label(value), "middle")
        for value in xs.ticks
    ]
    place = float(_LEFT)
    for number, (name, points) in enumerate(finite_curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        # Later curves are thinner, so that curves on top of each other are all visible.
        width = 1.5 + 1.5 * (len(finite_curves) - 1 - number)
        parts.append(_line([(_x(xs.share(x)), _y(ys.share(y))) for x, y in points], colour, width))
        parts.append(_line([(place, 38), (place + 16, 38)], colour, width))
        parts.append(words(place + 22, 42, name, "start"))
        place += 40 + _LETTER * len(name)
    return image(WIDTH, HEIGHT, title, "\n".join(parts), FONT) + "\n"


def in_one_picture(charts: Sequence[str], label: str) -> str:
    """Line charts below one another, as one SVG document.

    Args:
        charts: documents of `line_chart`.
        label: a description of all, for screen readers.

    Example:
        >>> chart = line_chart({"loss": [(0, 0.7), (1, 0.5)]}, "Loss", "epoch", "loss")
        >>> in_one_picture([chart, chart], "Losses").count("<svg")
        3
    """
    placed = (
        f'<g transform="translate(0 {number * HEIGHT})">{chart}</g>'
        for number, chart in enumerate(charts)
    )
    return image(WIDTH, max(len(charts), 1) * HEIGHT, label, "".join(placed)) + "\n"


class _Axis:
    """Axis from a round number below the least value to one above the greatest."""

    def __init__(self, values: Sequence[float]) -> None:
        least, most = min(values), max(values)
        rough = (most - least) / 5
        if rough <= 1e-12 * max(abs(least), abs(most)):  # of one number, but for its last digits
            rough = abs(most) / 5 or 0.2
        power = 10.0 ** math.floor(math.log10(rough))
        self.step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
        first, last = math.floor(least / self.step), math.ceil(most / self.step)
        self.ticks = [number * self.step for number in range(first, max(last, first + 1) + 1)]

    def share(self, value: float) -> float:
        """Position of a value, from 0 to 1."""
        return (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])

    def label(self, value: float) -> str:
        """The number with as many digits as distinguish the ticks."""
        return f"{value:,.{max(0, -math.floor(math.log10(self.step)))}f}"


def _x(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _line(points: Points, colour: str, width: float) -> str:
    if len(set(points)) == 1:  # a line would draw nothing
        x, y = points[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2 * width}" fill="{colour}"/>'
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
