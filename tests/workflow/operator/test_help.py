"""`help`, `repr` and a notebook show what a user needs, not machinery."""

import dataclasses
import pydoc

import pytest

from workflow import ColumnSchema, Schema, Workflow, ops
from workflow.operator.operator import Operator

OPERATORS = [
    getattr(ops, name)
    for name in ops.__all__
    if isinstance(getattr(ops, name), type) and issubclass(getattr(ops, name), Operator)
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_help_shows_settings_and_no_machinery(operator):
    text = pydoc.render_doc(operator, renderer=pydoc.plaintext)
    for hidden in ("__delattr__", "from_config", "merge(", "partial(", "__dataclass_fields__"):
        assert hidden not in text
    for name in operator.settings():
        assert name in text
    defaults = {
        f.name for f in dataclasses.fields(operator) if f.default is not dataclasses.MISSING
    }
    for name in defaults & set(operator.settings()):
        assert f"{name} = " in text
    assert len(text.splitlines()) < 110


def test_completion_offers_settings():
    assert {name for name in dir(ops.Clip) if name[0] != "_"} == {"min_value", "max_value"}


def test_a_schema_and_a_node_draw_themselves():
    columns = [ColumnSchema("<b>", "int64", tags=("categorical",)), ColumnSchema("age", "float32")]
    page = Schema(columns)._repr_html_()
    assert "<td>&lt;b&gt;</td><td>int64?</td><td>categorical</td>" in page
    assert "<td>age</td>" in page
    node = ["price"] >> ops.FillMissing(0) >> ops.Normalize()
    page = node._repr_html_()
    assert "<svg" in page
    for part in ("price", "FillMissing", "Normalize"):
        assert part in page
    assert "object at 0x" not in page
    # As the workflow of the node draws itself.
    assert Workflow(node)._repr_html_().count("<rect") == page.count("<rect")
