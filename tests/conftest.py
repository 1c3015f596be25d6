"""The tests of a file go to one worker, and those of a shared server: fixtures are made once."""

import gc

import pytest


def pytest_collection_finish():
    """Freeze what is imported by now: to look through it for garbage again and again takes long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("xdist_group") or item.get_closest_marker("long"):
            continue
        folder, file = item.path.parts[-2:]
        shared = "server" in getattr(item, "fixturenames", ()) and folder != "real_data"
        item.add_marker(pytest.mark.xdist_group(folder if shared else f"{folder}/{file}"))
