"""Line charts: any points are drawn, and inside the picture."""

import xml.etree.ElementTree as ET

import pytest

from workflow.picture.line_chart import line_chart


@pytest.mark.parametrize("points", [[], [(0, 1)], [(0, 1), (1, float("nan"))], [(1, 2), (1, 2)]])
def test_a_chart_of_next_to_nothing(points):
    drawn = ET.fromstring(line_chart({"a < b": points}, "t & u", "x", "y"))  # noqa: S314
    assert "t & u" in "".join(drawn.itertext())


def test_the_axis_holds_every_point():
    drawn = ET.fromstring(line_chart({"a": [(0, -3.2), (7, 1234.5)]}, "", "", ""))  # noqa: S314
    for part in drawn:
        if part.tag.endswith("polyline"):
            for x, y in (map(float, point.split(",")) for point in part.get("points").split()):
                assert 0 <= x <= 640
                assert 0 <= y <= 360
