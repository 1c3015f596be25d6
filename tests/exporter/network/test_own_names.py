"""The network in an ensemble keeps its own names, for whoever calls it without the ensemble."""

import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from small_export import configs, rows

from exporter import ExportError, ServingOptions, verify
from serving import EnsembleClient, TritonServer, check_parity

FEATURES = {
    "userId": np.array([[3], [4], [1]], np.int32),
    "genres__values": np.array([[3], [4], [1], [2]], np.int64),
    "genres__nnzs": np.array([[2], [0], [2]], np.int64),
    "price": np.array([[0.5], [-1.0], [2.0]], np.float32),
}


@pytest.fixture
def export(written_once):
    return written_once


def names(signature):
    return {name: spec.dtype.name for name, spec in signature.structured_input_signature[1].items()}


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("batch", [0, 8])
def test_serving_default_is_the_network_in_plain_python(export, model, batch, pack):
    report = export(serving=ServingOptions(max_batch_size=batch, pack=pack))
    loaded = tf.saved_model.load(str(report.paths["movies_tf"] / "model.savedmodel"))
    own = loaded.signatures["serving_default"]
    assert names(own) == {name: str(values.dtype) for name, values in FEATURES.items()}
    answer = own(**{name: tf.constant(values) for name, values in FEATURES.items()})
    ((_, received),) = answer.items()
    taken = dict(FEATURES)
    taken["genres"] = taken.pop("genres__values"), taken.pop("genres__nnzs")
    np.testing.assert_array_equal(received, model.predict_on_batch(taken))


def test_weights_are_not_written_twice(export, tmp_path):
    sizes = []
    for pack in (True, False):
        report = export(path=tmp_path / f"packed {pack}", serving=ServingOptions(pack=pack))
        folder = report.paths["movies_tf"] / "model.savedmodel" / "variables"
        sizes.append(sum(path.stat().st_size for path in folder.glob("*.data-*")))
    assert abs(sizes[0] - sizes[1]) < 1000  # the names of the objects are in there


@pytest.mark.parametrize("runtime", ["tensorflow", "onnx"])
def test_without_packing_each_column_is_a_tensor_between_the_steps(export, runtime):
    report = export(serving=ServingOptions(runtime=runtime, pack=False))
    _, network, _ = configs(report).values()
    assert {tensor.name for tensor in network.input} == set(FEATURES)
    if runtime == "tensorflow":
        assert network.parameters["TF_SIGNATURE_DEF"].string_value == "serving_default"
    assert verify(report.repository, "movies") == report.generation


def test_packed_tensors_are_those_of_a_signature_of_their_own(export):
    _, network, _ = configs(export()).values()
    assert network.parameters["TF_SIGNATURE_DEF"].string_value == "ensemble"


@pytest.mark.parametrize("runtime", ["fused_onnx", "fused_tensorflow"])
def test_there_is_nothing_to_unpack_in_one_model(runtime):
    with pytest.raises(ExportError, match=r"pack=False: runtime=.* is one model"):
        ServingOptions(runtime=runtime, pack=False)


def test_they_are_served_alike(export, workflow, model, tmp_path):
    for name, batch, runtime in (
        ("flat", 0, "tensorflow"),
        ("joined", 8, "tensorflow"),
        ("onnx", 8, "onnx"),
    ):
        options = ServingOptions(runtime=runtime, max_batch_size=batch, pack=False)
        export(name=name, serving=options)
    with TritonServer(tmp_path / "models") as server:
        for name in ("flat", "joined", "onnx"):
            with EnsembleClient(server.grpc_url, name) as client:
                report = check_parity(client, workflow, model, pl.concat([rows()] * 3).head(8))
                assert report.passed, f"\n{report}"
