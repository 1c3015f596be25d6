"""A call of the TensorFlow backend on a GPU, beside TensorFlow 2's own call of the same signature.

    python -m benchmarks.gpu_serving [--device gpu|cpu] [--seconds 2]

A MovieLens-like network is saved, loaded by both, and asked for the same rows in turns. The
answers are compared before anything is timed. Needs no server.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

import triton_models.backends
from training import models, save_model

SIZES = (1, 64, 1024, 16384)
Call = Callable[[dict[str, Any]], dict[str, Any]]


def main() -> None:
    """Compare and time both calls."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    scalars = {"userId": (162_544, 64), "movieId": (56_873, 64)}
    network = models.mlp((scalars, {"genres": (23, 16)}))
    with tempfile.TemporaryDirectory() as folder:
        save_model(network, Path(folder) / "model.savedmodel")
        calls = {
            "TensorFlow 2, signature": signature(Path(folder)),
            "backend": backend(Path(folder), 0 if arguments.device == "gpu" else None),
        }
        print(f"| ms on the {arguments.device} by rows |", " | ".join(map(str, SIZES)), "|")
        medians = [race(calls, feed(rows), arguments.seconds) for rows in SIZES]
        for name in calls:
            print(f"| {name} |", " | ".join(f"{median[name]:.3f}" for median in medians), "|")


def signature(folder: Path) -> Call:
    """The signature as TensorFlow 2 calls it."""
    loaded = tf.saved_model.load(str(folder / "model.savedmodel"))
    function = loaded.signatures["serving_default"]

    def call(tensors: dict[str, Any]) -> dict[str, Any]:
        # What was loaded owns the variables.
        answered = function(**{n: tf.constant(t) for n, t in tensors.items()}) if loaded else {}
        return {name: tensor.numpy() for name, tensor in answered.items()}

    return call


def backend(folder: Path, device: int | None) -> Call:
    """The backend's own call."""
    sys.path.insert(0, str(Path(triton_models.backends.__file__).parent))
    # Triton's module exists in the server alone; loading and calling need nothing of it.
    sys.modules["triton_python_backend_utils"] = ModuleType("triton_python_backend_utils")
    module = import_module("triton_models.backends.tensorflow.model")
    model = module.TritonPythonModel()
    model.load(folder, {"name": "movielens"}, device)
    call: Call = model.call
    return call


def feed(rows: int) -> dict[str, Any]:
    """A request."""
    random = np.random.default_rng(rows)
    lengths = random.integers(0, 6, (rows, 1))
    return {
        "userId": random.integers(0, 162_544, (rows, 1), np.int32),
        "movieId": random.integers(0, 56_873, (rows, 1), np.int32),
        "genres__values": random.integers(0, 23, (lengths.sum(), 1)),
        "genres__nnzs": lengths,
    }


def race(calls: dict[str, Call], tensors: dict[str, Any], seconds: float) -> dict[str, float]:
    """Median milliseconds of each, in turns, once their answers are seen to agree."""
    first, *others = [call(tensors) for call in calls.values()]
    for other in others:
        for name, answer in first.items():
            np.testing.assert_allclose(other[name], answer, rtol=0, atol=1e-5)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call(tensors)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) * 1e3 for name, taken in times.items()}


if __name__ == "__main__":
    main()
