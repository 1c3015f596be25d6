"""A version that a server does not load or answer with is not published."""

import keras
import polars as pl
import pytest
import tensorflow as tf
from small_export import tree

from exporter import ExportError, ServingOptions, export_tensorflow_ensemble, verify
from exporter.write.onnx import without_rows
from workflow import Workflow


@pytest.fixture
def no_server(monkeypatch):
    monkeypatch.setenv("TRITONSERVER", "/none/tritonserver")


@pytest.mark.parametrize(
    "options",
    [
        {"prove": "server"},
        # Another version of the same config is not in the staged repository.
        {"prove": "auto", "runtime": "fused_onnx", "max_batch_size": 16},
    ],
    ids=["server", "auto"],
)
def test_a_server_answers_before_anything_is_published(export, options):
    kept = {**options, "prove": "process"}
    before = export(serving=ServingOptions(**kept))
    assert "answered in the process of the export" in str(before)
    assert "No server" not in str(before)
    report = export(version=2, serving=ServingOptions(**options))
    assert "A server has loaded the models and answered the golden rows" in str(report)
    assert report.proof.in_server
    # It left nothing, in the repository or beside it.
    assert verify(report.repository, "movies") == report.generation
    assert [path.name for path in report.repository.parent.iterdir()] == ["models"]


def test_what_a_server_cannot_load_is_not_published(export, tmp_path):
    """There is no GPU here, which only a server finds out."""
    export()
    before = tree(tmp_path)
    with pytest.raises(ExportError) as failure:
        export(version=2, serving=ServingOptions(prove="server", network_kind="KIND_GPU"))
    text = str(failure.value)
    assert text.startswith("Expected a server that loads the written models and answers")
    assert "movies_tf" in text
    assert "GPU" in text
    assert 'prove="process" leaves the server out' in text
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("no_server")
def test_without_a_server_auto_is_the_process(export):
    report = export(serving=ServingOptions(prove="auto"))
    assert not report.proof.in_server
    text = " ".join(str(report).split())
    assert "No server answered them too. Expected the program tritonserver. Received: /no" in text
    with pytest.raises(ExportError, match=r"Received: /none/tritonserver, cannot be run"):
        export(version=2, serving=ServingOptions(prove="server"))


def export_one(network, path, runtime):
    """An export of a network that takes the column x, answered in a server."""
    workflow = Workflow(["x"]).fit(
        pl.DataFrame({"x": [[0.5, 2.0, 1.0]]}, {"x": pl.List(pl.Float32)})
    )
    serving = ServingOptions(runtime=runtime, prove="server", warm_up=False)
    export_tensorflow_ensemble(network, workflow, "one", path, None, {"x": 3}, serving=serving)


def test_a_network_that_a_request_without_rows_ends_is_not_published(tmp_path, monkeypatch):
    monkeypatch.setattr(without_rows, "ENDING", ())
    x = keras.Input((3,), name="x")
    states = keras.layers.LSTM(2)(keras.layers.Reshape((3, 1))(x))
    with pytest.raises(ExportError, match=r"A request without rows had ended the model\.\nNothing"):
        export_one(keras.Model(x, states), tmp_path / "models", "fused_onnx")
    assert not (tmp_path / "models" / "one").exists()


class SomeRows(keras.layers.Layer):
    """Asserts that there are rows."""

    def call(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(tf.shape(x)[0])]):
            return tf.identity(x)


def test_a_network_that_refuses_a_request_without_rows_is_published(tmp_path):
    x = keras.Input((3,), name="x")
    with pytest.warns(UserWarning, match=r"The server refuses a request of one without rows: "):
        export_one(keras.Model(x, SomeRows()(x)), tmp_path, "fused_tensorflow")
    assert (tmp_path / "one").exists()
