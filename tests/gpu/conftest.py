"""The device of these tests: the first GPU, or the "cpu" of TEST_DEVICE, which tries the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# TensorFlow reads them when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")


def pytest_itemcollected(item):
    item.add_marker("gpu")
    for deprecated in ("DeprecationWarning", "FutureWarning"):  # cuDF's packages among themselves
        item.add_marker(pytest.mark.filterwarnings(f"ignore::{deprecated}"))


@pytest.fixture(scope="session")
def device():
    return os.environ.get("TEST_DEVICE", "gpu:0")


@pytest.fixture(scope="session")
def engine(device):
    return "cpu" if device == "cpu" else "gpu"


@pytest.fixture(scope="session")
def environment():
    """Environment of programs beside these tests, which import what the tests do."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def whole_floats():
    """Products in float32 of all their bits."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)
