"""Line charts: any points are drawn, and inside the picture."""

import xml.etree.ElementTree as ET

import pytest

from workflow.picture.line_chart import line_chart

LAST_DIGIT = [(0, -118.4117966757189), (1, -118.41179667571889)]


@pytest.mark.parametrize(
    "points",
    [[], [(0, 1)], [(0, 1), (1, float("nan"))], [(1, 2), (1, 2)], LAST_DIGIT, [(0, 5e-324)]],
)
def test_a_chart_of_next_to_nothing(points):
    drawn = ET.fromstring(line_chart({"a < b": points}, "t & u", "x", "y"))  # noqa: S314
    assert "t & u" in "".join(drawn.itertext())


@pytest.mark.parametrize("points", [[(1, 2)], [(1, 2), (1, 2)]])
def test_a_curve_of_one_point_is_a_dot_there(points):
    drawn = ET.fromstring(line_chart({"one": points, "two": [(0, 0), (2, 4)]}, "", "", ""))  # noqa: S314
    (dot,) = (part for part in drawn.iter() if part.tag.endswith("circle"))
    assert float(dot.get("r")) >= 2
    # The other curve goes from corner to corner, and the point lies in its middle.
    assert (float(dot.get("cx")), float(dot.get("cy"))) == (334.0, 190.0)


def test_the_axis_holds_every_point():
    drawn = ET.fromstring(line_chart({"a": [(0, -3.2), (7, 1234.5)]}, "", "", ""))  # noqa: S314
    for part in drawn:
        if part.tag.endswith("polyline"):
            for x, y in (map(float, point.split(",")) for point in part.get("points").split()):
                assert 0 <= x <= 640
                assert 0 <= y <= 360
