"""The tests of a file go to one worker, and those of a shared server: fixtures are made once."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

GPU_TESTS = Path(__file__).parent / "gpu"


class NoGpu(pytest.Dir):
    """The tests for a GPU where there is none: one skip for all of them."""

    def collect(self):
        pytest.skip("needs an NVIDIA GPU and cuDF; `make test-gpu` runs it")


def pytest_collect_directory(path, parent):
    if path == GPU_TESTS and "TEST_DEVICE" not in os.environ and not has_gpu():
        return NoGpu.from_parent(parent, path=path)
    return None


def has_gpu():
    if find_spec("pylibcudf") is None:
        return False
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def pytest_collection_finish():
    """Freeze what is imported by now: to look through it for garbage again and again takes long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(items):
    # What another library has changed fails by its name, before all that it breaks.
    items.sort(key=lambda item: item.path.name != "test_private_names.py")
    for item in items:
        if item.get_closest_marker("xdist_group") or item.get_closest_marker("long"):
            continue
        folder, file = item.path.parts[-2:]
        shared = "server" in getattr(item, "fixturenames", ()) and folder != "real_data"
        item.add_marker(pytest.mark.xdist_group(folder if shared else f"{folder}/{file}"))
