"""A text is one name or one tag, and not its letters."""

import pytest

from workflow import ColumnSchema, Schema, Tags

SCHEMA = Schema(ColumnSchema(name, "int64") for name in ("ab", "a", "b"))


@pytest.mark.parametrize("method", ["select", "keep"])
def test_one_column_is_taken_by_its_name(method):
    assert getattr(SCHEMA, method)("ab").names == ["ab"]


def test_one_column_is_dropped_by_its_name():
    assert SCHEMA.without("ab").names == ["a", "b"]


@pytest.mark.parametrize("tags", ["user", Tags.USER, ["user"], (Tags.USER, "user")])
def test_one_tag_is_not_its_letters(tags):
    column = ColumnSchema("a", "int64", tags=tags)
    assert column.tags == ("user",)
    assert Schema([column]).tagged(Tags.USER).names == ["a"]
