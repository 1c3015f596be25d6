"""A config that does not fit its model is refused when the model is loaded, with both sides named."""

import shutil

import pytest

from serving import EnsembleClient, ServerError, TritonServer
from serving.embedded.flags import server_flags


def broken_copy(repository, model, old, new):
    """A copy of a model whose config differs in one place."""
    copy = repository / f"{model}_broken"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(repository / model, copy)
    config = copy / "config.pbtxt"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    return copy.name


CONFIGS = [
    (
        "sums",
        'name: "genres__values" data_type: TYPE_INT32',
        'name: "genres__values" data_type: TYPE_INT64',
        "the input 'genres__values' as TYPE_INT64 [-1, 1], but the model has TYPE_INT32 [-1, 1]",
    ),
    (
        "sums",
        'string_value: "score"',
        'string_value: "predict"',
        "Expected the signature 'predict' (parameter TF_SIGNATURE_DEF)",
    ),
    (
        "sums",
        'key: "TF_NUM_INTRA_THREADS" value { string_value: "1" }',
        'key: "TF_GRAPH_TAG" value { string_value: "gpu" }',
        "Expected a SavedModel with the tag 'gpu' (parameter TF_GRAPH_TAG) in",
    ),
    ("codes", '"word"', '"words"', "declares the inputs ['words'], but the model has ['word']"),
    ("codes", '"code"', '"id"', "the output 'id', but the model has ['code', 'same']"),
    ("codes", "[-1, 1]", "[-1]", "as TYPE_STRING [-1], but the model has TYPE_STRING [-1, 1]"),
    ("external", '"2"', '"many"', "intra_op_thread_count of 'external_broken' as a number of"),
]


@pytest.mark.parametrize(
    ("model", "old", "new", "reason"), CONFIGS, ids=[config[2] for config in CONFIGS]
)
def test_a_config_that_does_not_fit_is_refused(repository, server, model, old, new, reason):
    name = broken_copy(repository, model, old, new)
    with pytest.raises(ServerError) as refusal:
        server.load(name)
    assert reason in str(refusal.value)
    assert name not in server.models
    assert server.is_ready()


def test_a_missing_model_file_is_named(repository, server):
    name = broken_copy(repository, "codes", "backend", "backend")
    (repository / name / "1" / "model.onnx").unlink()
    with pytest.raises(ServerError, match=r"Expected the model of 'codes_broken' in .*model\.onnx"):
        server.load(name)


def test_a_missing_saved_model_is_named(repository, server):
    name = broken_copy(repository, "sums", "backend", "backend")
    shutil.rmtree(repository / name / "1" / "model.savedmodel")
    with pytest.raises(ServerError, match=r"Expected a SavedModel .*sums_broken.*\.savedmodel"):
        server.load(name)


def test_inputs_and_outputs_are_completed_from_the_model(repository, tmp_path, monkeypatch):
    shutil.copytree(repository / "codes", tmp_path / "models" / "codes")
    (tmp_path / "models" / "codes" / "config.pbtxt").write_text('backend: "onnxruntime"')
    strict = "--disable-auto-complete-config"

    def lenient(flags):
        return [flag for flag in server_flags(flags) if flag != strict]

    monkeypatch.setattr("serving.embedded.process.server_flags", lenient)
    with (
        TritonServer(tmp_path / "models") as server,
        EnsembleClient(server.grpc_url, "codes") as client,
    ):
        tensors = [*client.contract.inputs, *client.contract.outputs]
    assert [(tensor.name, tensor.dtype) for tensor in tensors] == [
        ("word", "string"),
        ("code", "int64"),
        ("same", "string"),
    ]
