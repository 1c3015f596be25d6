"""Tests that share what takes long to make go to one worker, so that it is made once."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "real_data":  # a network and a server in each file
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
        elif "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(str(item.path.parent)))
