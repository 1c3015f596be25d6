"""Keras variables that were saved as such are loaded in two steps, of which one leaves nothing."""

import gc

import numpy as np
import pytest
import tensorflow as tf

CONFIG = {"name": "keras"}


@pytest.fixture
def opened():
    """The sessions that were opened since, and are not closed."""
    sessions = []
    made = tf.compat.v1.Session.__init__

    def remember(session, *arguments, **named):
        sessions.append(session)
        made(session, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.compat.v1.Session, "__init__", remember)
        yield lambda: [session for session in sessions if not session._closed]


def test_the_session_without_values_is_closed(repository, without_server, opened):
    model = without_server("tensorflow/model").TritonPythonModel()
    model.load(repository / "keras" / "1", CONFIG, None)
    gc.collect()
    assert len(opened()) == 1
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
