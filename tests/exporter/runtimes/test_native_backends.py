"""Joined requests as Triton's own backends pass them to the exported graphs, of which one is bad."""

import sys
from importlib import import_module

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from exporter import ServingOptions
from training.network.onnx_session import open_session

GENRES = np.array([["a", "b"], ["b", ""], ["", ""], ["a", ""]], object)
LENGTHS = [2, 1, 0, 1]
SCALARS = {
    "userId": np.array([[1], [2], [3], [2]], np.int64),
    "price": np.array([[1.0], [2.0], [np.nan], [4.0]]),
}
BACKEND = "triton_models.backends.onnxruntime.model"
BAD = [-1, 3, 2**62, -(2**63), 2**63 - 1]


def onnx_answer(report, lengths):
    """Every model of the export in turn, with ragged rows as their values and widths."""
    tensors = SCALARS | {"genres": GENRES.reshape(-1)}
    tensors["genres__widths"] = np.full(len(GENRES), GENRES.shape[1], np.int32)
    tensors["genres__nnzs"] = np.array(lengths).reshape(-1, 1)
    models = report.plan.steps or (report.plan.published,)
    for model in models:
        session = onnxruntime.InferenceSession(report.paths[model.name] / "model.onnx")
        for tensor in session.get_inputs():
            if tensor.name.endswith("__widths") and tensor.name not in tensors:
                rows = tensors[tensor.name.removesuffix("__widths")]
                tensors[tensor.name] = np.full(len(rows), rows.shape[1], np.int32)
                tensors[tensor.name.removesuffix("__widths")] = rows.reshape(-1)
        feed = {t.name: tensors[t.name] for t in session.get_inputs()}
        made = zip((t.name for t in session.get_outputs()), session.run(None, feed), strict=True)
        tensors = {name.removesuffix("__out"): array for name, array in made}
    return tensors["output"]


def tensorflow_answer(report, lengths):
    """As the native backend: the names of the signature's tensors, in a session."""
    given = SCALARS | {"genres": GENRES, "genres__nnzs": np.array(lengths).reshape(-1, 1)}
    folder = str(report.paths["movies"] / "model.savedmodel")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        signature = loaded.signature_def["serving_default"]
        feed = {signature.inputs[name].name: array for name, array in given.items()}
        return session.run(signature.outputs["output"].name, feed)


ANSWER = {
    "onnx": onnx_answer,
    "fused_onnx": onnx_answer,
    "fused_tensorflow": tensorflow_answer,
}


@pytest.mark.parametrize("runtime", ANSWER)
def test_a_bad_length_leaves_the_answers_to_joined_requests_as_they_are(runtime, export):
    report = export(serving=ServingOptions(runtime=runtime, max_batch_size=64))
    expected = ANSWER[runtime](report, LENGTHS)
    assert len(np.unique(expected)) == len(expected)
    for bad in BAD:
        answer = ANSWER[runtime](report, [LENGTHS[0], bad, *LENGTHS[2:]])
        np.testing.assert_allclose(answer[[0, 2, 3]], expected[[0, 2, 3]], rtol=1e-6)
        assert np.isfinite(answer).all()


def test_padded_lists_have_the_shape_that_the_native_tensorflow_backend_expects(export):
    """It compares the config with the model, except for ragged inputs, of which it makes one row."""
    report = export(serving=ServingOptions(runtime="fused_tensorflow", max_batch_size=64))
    signature = tf.saved_model.load(str(report.paths["movies"] / "model.savedmodel")).signatures
    specs = signature["serving_default"].structured_input_signature[1]
    for tensor in report.plan.published.inputs:
        assert not tensor.ragged
        assert [-1 if size is None else size for size in specs[tensor.name].shape] == [*tensor.dims]


def test_onnxruntime_is_told_not_to_report_its_use_before_it_is_imported(tmp_path, monkeypatch):
    """Answers of the exporter and of our backend, in whichever process they run."""
    fake = tmp_path / "onnxruntime.py"
    fake.write_text("import os\nraise SystemExit(os.environ['ORT_DISABLE_TELEMETRY'])\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime")
    monkeypatch.delitem(sys.modules, BACKEND, raising=False)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", sys)
    for start in (lambda: open_session(b""), lambda: import_module(BACKEND)):
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "")
        monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
        with pytest.raises(SystemExit, match="1"):
            start()
