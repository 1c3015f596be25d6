"""Pictures: every node and column is there, readable and harmless, in any terminal and notebook."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow import Subgraph, Workflow, ops
from workflow.graph.node import as_node
from workflow.picture import Arrow, Box, Diagram, Item
from workflow.picture.diagram import width_of
from workflow.picture.html import to_html
from workflow.picture.layout import layout
from workflow.picture.markup import image, safe, table
from workflow.picture.svg import to_svg
from workflow.picture.text import to_text

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ["<script>alert(1)</script>", 'a"b', "a'&amp;b", "a\nb", "\x00\x1b[31m", "\ud800", "]]>"]
DATA = {"userId": [7, 9], "price": [1.0, None], "rating": [5.0, 1.0]}


def small_workflow() -> Workflow:
    label = ["rating"] >> ops.LambdaOp(lambda rating: rating > 3)
    encoded = ["userId"] >> ops.TargetEncoding(label, p_smooth=10)
    price = Subgraph("price", ["price"] >> ops.FillMissing(0) >> ops.Normalize())
    return Workflow(encoded + price + label)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


def tooltips(svg: str) -> str:
    return "\n".join(e.text or "" for e in ET.fromstring(svg).iter(f"{SVG}title"))  # noqa: S314


# Text


def test_a_fitted_workflow_as_text():
    assert str(small_workflow().fit(DATA)) == (
        "Output → TE_userId_rating: float32, price: float32, rating: bool?\n"
        "├─ TargetEncoding(p_smooth=10) → TE_userId_rating: float32\n"
        "│  ├─ [userId] → userId: int64?\n"
        "│  └─ LambdaOp #1 → rating: bool?\n"
        "│     ↑ [rating] → rating: float64?\n"
        "├─ Subgraph price → price: float32\n"
        "│  ↑ Normalize → price: float32\n"
        "│  ↑ FillMissing → price: float64\n"
        "│  ↑ [price] → price: float64?\n"
        "└─ LambdaOp #1 → rating: bool?"
    )


def test_a_workflow_that_is_not_fitted_as_text():
    assert str(small_workflow()).splitlines()[:2] == [
        "Output (not fitted)",
        "├─ TargetEncoding(p_smooth=10)",
    ]


def test_settings_left_as_they_are_are_not_told():
    target = ["rating"] >> ops.AddMetadata(tags=["target"])
    assert str(Workflow(target)).splitlines()[1] == "↑ AddMetadata(tags=['target'])"


def test_many_columns_are_shortened_to_the_line():
    names = [f"C{n}" for n in range(1, 27)]
    workflow = Workflow(names >> ops.FillMissing(0)).fit({name: [1] for name in names})
    lines = str(workflow).splitlines()
    assert lines[0] == (
        "Output → 26 columns: C1: int64, C2: int64, C3: int64, C4: int64, … C26: int64"
    )
    assert lines[2].startswith("↑ [26 columns: C1, C2, C3, C4, … C26]")
    assert all(width_of(line) <= 80 for line in lines)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_output_can_show_it(encoding):
    workflow = Workflow(["é", "番号"] >> ops.FillMissing(0)).fit({"é": [1], "番号": [2]})
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as out:
        workflow.show(out)
        out.flush()
        text = raw.getvalue().decode(encoding)
    assert ("^ FillMissing" in text) == (encoding != "utf-8")
    assert ("番号" in text) == (encoding == "utf-8")
    assert "FillMissing" in text


def test_text_is_as_wide_as_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    small_workflow().fit(DATA).show()
    assert max(map(width_of, capsys.readouterr().out.splitlines())) <= 60


def test_a_name_does_not_break_lines_or_colour_the_terminal():
    boxes = [Box(name, items=[Item(name)]) for name in HOSTILE]
    arrows = [Arrow(n, n + 1, [Item(name)]) for n, name in enumerate(HOSTILE[1:])]
    text = to_text(Diagram("", boxes, arrows))
    assert len(text.splitlines()) == len(HOSTILE)
    assert text.replace("\n", "").isprintable()


def test_deep_and_shared_graphs_are_drawn_once_and_without_recursion():
    node = as_node("a")
    for _ in range(3_000):
        node = node["a"]
    assert len(str(Workflow(node)).splitlines()) == 3_002
    shared = ["a"] >> ops.FillMissing(0)
    for _ in range(40):
        shared = (shared + (shared >> ops.LambdaOp(lambda c: c)))["a"]
    assert len(str(Workflow(shared)).splitlines()) < 250


# SVG and HTML


@pytest.mark.parametrize("fitted", [False, True])
def test_svg_has_every_node(fitted):
    workflow = small_workflow()
    svg = (workflow.fit(DATA) if fitted else workflow).to_svg()
    shown = texts(svg)
    for title in ("TargetEncoding", "Subgraph price", "Normalize", "FillMissing", "[userId]"):
        assert shown.count(title) == 1
    assert ("price: float32" in shown) == fitted


def test_tooltips_tell_what_is_known_of_a_column():
    workflow = Workflow(["userId"] >> ops.Categorify()).fit(DATA)
    assert "userId: int64  cardinality 5; domain min 0, max 4" in tooltips(workflow.to_svg())
    assert "tags categorical" in workflow._repr_html_()


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.found.add(tag)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_names_are_text_and_nothing_else(name):
    item = Item(name, name, name)
    boxes = [Box(name, name, [item], "input"), Box(name, items=[item], kind="output")]
    diagram = Diagram(name, boxes, [Arrow(0, 1, [item])])
    known = {"svg", "style", "rect", "g", "title", "text", "path"}
    assert {e.tag.removeprefix(SVG) for e in ET.fromstring(to_svg(diagram)).iter()} == known  # noqa: S314
    page = known | {"div", "details", "summary", "table", "tr", "td"}
    assert Elements(to_html(diagram)).found == page
    to_html(diagram).encode()


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_images_and_tables_hold_names_as_text(name):
    drawn = ET.fromstring(image(9, 9, name, f"<text>{safe(name)}</text>"))  # noqa: S314
    assert [e.tag.removeprefix(SVG) for e in drawn.iter()] == ["svg", "text"]
    assert drawn.attrib["aria-label"] == drawn[0].text
    tags = [e.tag for e in ET.fromstring(table([[name]], [name], marked=[0])).iter()]  # noqa: S314
    assert tags == ["div", "table", "tr", "th", "tr", "td"]


def test_a_notebook_shows_a_huge_graph_as_text():
    boxes = [Box(f"<step {n}>") for n in range(300)]
    page = to_html(Diagram("", boxes, [Arrow(n, n + 1) for n in range(299)]))
    assert Elements(page).found == {"div", "pre"}
    assert "&lt;step 299&gt;" in page


def test_a_loaded_workflow_looks_as_it_did(tmp_path):
    workflow = small_workflow().fit(DATA)
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    assert str(loaded) == str(workflow)
    assert loaded.to_svg() == workflow.to_svg()


def test_arrows_lead_forward():
    with pytest.raises(ValueError, match="Received: 1 to 0"):
        Diagram("", [Box("a"), Box("b")], [Arrow(1, 0)])


# Layout

GRAPHS = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.tuples(st.integers(5, 300), st.integers(5, 90)), min_size=n, max_size=n),
        st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=50),
    )
)


@settings(max_examples=150, derandomize=True)
@given(GRAPHS)
def test_boxes_do_not_overlap_and_arrows_lead_down(graph):
    sizes, pairs = graph
    arrows = [(start, end) for start, end in sorted(pairs) if start < end]
    drawing = layout(sizes, arrows)
    rectangles = [
        (x, y, x + w, y + h) for (x, y), (w, h) in zip(drawing.places, sizes, strict=True)
    ]
    for a, b in combinations(rectangles, 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
    for left, top, right, bottom in rectangles:
        assert left >= -1e-6
        assert top >= 0
        assert right <= drawing.width + 1e-6
        assert bottom <= drawing.height + 1e-6
    for (start, end), way in zip(arrows, drawing.ways, strict=True):
        heights = [y for _, y in way]
        assert heights == sorted(heights)
        assert heights[0] == rectangles[start][3]
        assert heights[-1] == rectangles[end][1]


def test_a_chain_is_straight():
    drawing = layout([(40, 20), (200, 20), (10, 50)], [(0, 1), (1, 2)])
    assert len({x for way in drawing.ways for x, _ in way}) == 1


def test_arrows_do_not_cross_where_they_need_not():
    pairs = [(start, 9 - start) for start in range(5)]
    drawing = layout([(30, 10)] * 10, pairs)
    starts = sorted(range(5), key=lambda box: drawing.places[box])
    ends = sorted(range(5, 10), key=lambda box: drawing.places[box])
    assert [9 - end for end in ends] == starts
