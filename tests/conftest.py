"""Tests that share a running server go to one worker, so that it is started once."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(str(item.path.parent)))
