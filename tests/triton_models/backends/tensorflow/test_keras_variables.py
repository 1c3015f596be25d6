"""Keras variables that were saved as such are loaded in two steps, of which one leaves nothing."""

import numpy as np
import tensorflow as tf

CONFIG = {"name": "keras"}


def test_the_session_without_values_is_closed(repository, without_server, monkeypatch):
    backend = without_server("tensorflow/model")
    opened, closed = [], []

    class Watched(backend.GraphSession):
        def __init__(self, graph, config):
            opened.append(self)
            super().__init__(graph, config)

        def close(self):
            closed.append(self)
            super().close()

    monkeypatch.setattr(backend, "GraphSession", Watched)
    model = backend.TritonPythonModel()
    model.load(repository / "keras" / "1", CONFIG, None)
    assert len(opened) == 2
    assert closed == opened[:1]
    tensors = {"x": np.array([[3]], np.float32), "word": np.array([[b"a"]], object)}
    assert model.call(tensors)["sum"].tolist() == [[7]]


def test_gpus_are_hidden_before_tensorflow_could_take_one(repository, without_server, monkeypatch):
    calls = []

    def record(module, name):
        function = getattr(module, name)

        def recorded(*arguments, **named):
            calls.append((name, arguments))
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, recorded)

    record(tf.config, "set_visible_devices")
    record(tf.saved_model, "load")
    model = without_server("tensorflow/model").TritonPythonModel()
    model.load(repository / "keras" / "1", CONFIG, None)
    (hidden, devices), (loaded, _) = calls
    assert (hidden, devices) == ("set_visible_devices", ([], "GPU"))
    assert loaded == "load"
