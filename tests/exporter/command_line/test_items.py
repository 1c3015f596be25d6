"""The options of a search for the nearest items."""

from pathlib import Path

import pytest

from exporter import NearestItems
from exporter.command_line.guard import CommandError
from exporter.command_line.items import with_items

MODEL, ITEMS = Path("tower.keras"), Path("items.parquet")


@pytest.mark.parametrize("option", ["k", "index", "search"])
def test_no_option_of_a_search_is_ignored(option):
    given = dict.fromkeys(("k", "index", "search")) | {option: "20"}
    with pytest.raises(CommandError, match=f"Expected --{option} with --items FILE"):
        with_items(MODEL, None, **given)


@pytest.mark.parametrize(("given", "k"), [(None, 10), (20, 20)])
def test_how_many_items_are_found(given, k):
    assert with_items(MODEL, ITEMS, given, None, None) == NearestItems(MODEL, ITEMS, k)
    assert with_items(MODEL, None, None, None, None) == MODEL
