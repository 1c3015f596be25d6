"""The files that each runtime writes, and the objects that it leaves alone."""

import numpy as np
import pytest
from small_export import configs, make_workflow, tree

from exporter import ExportError, ServingOptions, verify
from exporter.plan.plan import Runtime
from exporter.plan.runtime import RUNTIMES
from exporter.runtimes.registry import runtime_of
from training import models
from workflow import get_embedding_sizes
from workflow.wire.format import parse_columns

BATCHED = {runtime: ServingOptions(runtime=runtime, max_batch_size=64) for runtime in RUNTIMES}
ONNX = ["onnx", "fused_onnx"]


def test_every_runtime_is_implemented():
    for name in RUNTIMES:
        assert isinstance(runtime_of(name), Runtime)
    with pytest.raises(NotImplementedError, match="has no runtime 'openvino'"):
        runtime_of("openvino")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_requests_are_joined_where_a_batch_size_is_given(runtime, written_once):
    by_name = configs(written_once(serving=BATCHED[runtime]))
    published = by_name["movies"]
    assert len(by_name) == (1 if RUNTIMES[runtime].is_fused else 3)
    for config in by_name.values():
        assert config.max_batch_size == 64
        assert config.HasField("dynamic_batching") == (config.platform != "ensemble")
    dims = {tensor.name: list(tensor.dims) for tensor in published.input}
    assert dims == {"userId": [1], "genres": [-1], "genres__nnzs": [1], "price": [1]}
    ragged = {tensor.name for tensor in published.input if tensor.allow_ragged_batch}
    # A native TensorFlow backend would pass on ragged rows as one row of values.
    assert ragged == ({"genres"} if runtime != "fused_tensorflow" else set())
    columns = parse_columns(published.parameters["inputs"].string_value)
    assert {c.name: c.layout for c in columns}["genres"] == "padded"


@pytest.mark.parametrize("runtime", ONNX)
def test_onnx_models_run_on_the_stock_backend(runtime, written_once):
    for config in configs(written_once(serving=BATCHED[runtime])).values():
        if config.platform == "ensemble":
            continue
        assert config.backend == "onnxruntime"
        assert config.parameters["intra_op_thread_count"].string_value == "1"
        ragged = [tensor.name for tensor in config.input if tensor.allow_ragged_batch]
        made = {(i.source_input[0], i.target_name[0], i.kind) for i in config.batch_input}
        kind = 5  # BATCH_ITEM_SHAPE_FLATTEN
        assert made == {(name, f"{name}__widths", kind) for name in ragged}
        assert ragged == ["genres"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_fused_model_and_an_ensemble_can_follow_each_other(runtime, written_once):
    written_once(serving=ServingOptions(runtime="fused_onnx"))
    report = written_once(version=2, serving=ServingOptions(runtime=runtime))
    assert verify(report.repository, "movies") == report.generation
    older = list(configs(report)["movies"].version_policy.specific.versions)
    assert older == ([1, 2] if runtime == "fused_onnx" else [2])


def test_a_fused_model_may_not_take_the_place_of_a_step(written_once):
    written_once()
    with pytest.raises(ExportError, match="Expected movies_nvt to be what clients ask"):
        written_once(name="movies_nvt", version=2, serving=ServingOptions(runtime="fused_onnx"))


def test_few_versions_stay_loadable_if_so_asked(written_once):
    options = ServingOptions(runtime="fused_onnx", keep_versions=2)
    for version in (1, 2, 3):
        report = written_once(version=version, serving=options)
    assert list(configs(report)["movies"].version_policy.specific.versions) == [2, 3]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_full_disk_leaves_the_old_version_as_it_was(
    runtime, export, written_once, tmp_path, full_disk
):
    """Errors of writing by Python, by onnx and by TensorFlow are alike."""
    options = ServingOptions(runtime=runtime)
    written_once(serving=options)
    before = tree(tmp_path)
    message = r"Expected to be able to write.*too large[^\[]*(try again|permissions of the disk)\.$"
    with full_disk(9_000), pytest.raises(ExportError, match=message):
        export(version=2, serving=options)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_users_objects_are_not_changed(runtime, export, tmp_path):
    pipeline = make_workflow()
    pipeline.save(tmp_path / "before")
    network = models.mlp(get_embedding_sizes(pipeline), ["price"], max_embedding_dim=4)
    weights = [np.array(weight) for weight in network.get_weights()]
    config = network.get_config()
    dtypes = dict(pipeline.output_dtypes)
    export(network, pipeline, serving=BATCHED[runtime])
    pipeline.save(tmp_path / "after")
    assert tree(tmp_path / "before") == tree(tmp_path / "after")
    assert network.get_config() == config
    assert dict(pipeline.output_dtypes) == dtypes
    for before, after in zip(weights, network.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
