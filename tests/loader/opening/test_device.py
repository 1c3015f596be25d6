"""A GPU has one number, whoever asks for it."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader
from loader.errors import LoaderError
from loader.opening.device import gpu_number, gpus_of_tensorflow


def see_gpus(monkeypatch, visible):
    """Three GPUs and cuDF, as a machine with them reports them; none is used."""
    gpus = [SimpleNamespace(number=each) for each in "012"]
    found = [gpu for gpu in gpus if gpu.number in visible]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)  # noqa: ARG005
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: found)  # noqa: ARG005
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())  # noqa: ARG005


@pytest.mark.parametrize(
    ("visible", "device", "number", "name"),
    [("012", None, 0, "/gpu:0"), ("12", None, 1, "/gpu:0"), ("12", "gpu:2", 2, "/gpu:1")],
)
def test_cudf_and_tensorflow_mean_the_same_gpu(monkeypatch, visible, device, number, name):
    """`configure_tensorflow(device=1)` makes GPU 1 the first that TensorFlow has."""
    see_gpus(monkeypatch, visible)
    assert gpu_number(device) == number
    assert gpus_of_tensorflow()[number] == name
    if "0" not in visible:
        with pytest.raises(LoaderError, match=r"among \[1, 2\]\. Received: 0"):
            gpu_number(0)


def test_a_readers_options_take_the_cpu_unless_a_gpu_is_asked_for(monkeypatch, tmp_path):
    pl.DataFrame({"a": [1, 2, 3], "b": [0, 1, 0]}).write_parquet(tmp_path / "a.parquet")
    see_gpus(monkeypatch, "012")
    options = {
        "batch_size": 2,
        "cont_names": ["a"],
        "label_names": ["b"],
        "reader_kwargs": {"cache": False},
    }
    loader = KerasSequenceLoader(tmp_path, **options)
    assert [len(x["a"]) for x, _ in loader] == [2, 1]
    with pytest.raises(LoaderError, match="Expected reader_kwargs on the CPU only"):
        KerasSequenceLoader(tmp_path, device=0, **options)
