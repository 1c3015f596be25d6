"""The device of these tests: the first GPU, or the "cpu" of TEST_DEVICE, which tries the tests."""

from __future__ import annotations

import os

import pytest

# TensorFlow reads them when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")


@pytest.fixture(scope="session")
def device():
    return os.environ.get("TEST_DEVICE", "gpu:0")


@pytest.fixture(scope="session")
def engine(device):
    return "cpu" if device == "cpu" else "gpu"
