"""Exports too large for a server, or for the format of its files, are refused before anything is written."""

import keras
import numpy as np
import polars as pl
import pytest

from exporter import ExportError, ServingOptions
from exporter.report.memory import planned_memory
from exporter.write.onnx import model as onnx_model
from training import models
from workflow import Workflow, get_embedding_sizes, ops
from workflow.expressions.onnx import wire

ROWS, WIDTH = 50_000, 400
TABLE = (ROWS + 1) * WIDTH * 4  # with the row for unknown ids: 80 MB


@pytest.fixture(scope="module")
def large():
    """A network whose table is nearly all of it."""
    sizes = {"userId": (ROWS, WIDTH)}
    keras.utils.set_random_seed(0)
    return models.mlp(sizes, ["price"], hidden=(4,), id_dtypes={"userId": "int64"})


def refused(export, tmp_path, network, **options):
    with pytest.raises(ExportError) as error:
        export(network, labels=[], serving=ServingOptions(**options))
    assert list(tmp_path.iterdir()) == []
    return str(error.value)


def test_a_server_with_too_little_memory_is_said_before_anything_is_written(
    export, large, tmp_path
):
    # Three instances of 58 MB with a table of 80 MB, and one of 21 MB, in two versions: 0.87 GB.
    options = {"runtime": "tensorflow", "network_instances": 3, "keep_versions": 1}
    error = refused(export, tmp_path, large, server_memory_gb=0.85, **options)
    assert (
        "Expected models for server_memory_gb=0.85. Received: weights and vocabularies of 0.08"
        in error
    )
    assert "the server needs 0.87" in error
    assert "1 of movies_nvt with 21 MB, 3 of movies_tf with 138 MB as instances" in error
    assert "each 2 times while a new version loads beside those of keep_versions=1" in error
    assert 'runtime="onnx", which maps large weights once' in error
    export(large, labels=[], serving=ServingOptions(server_memory_gb=0.9, **options))


def test_each_version_that_is_kept_needs_memory(export, large, tmp_path):
    # As above, 0.435 GB a version, of which a server holds those kept and one that is loading.
    options = {"runtime": "tensorflow", "network_instances": 3}
    error = refused(export, tmp_path, large, server_memory_gb=1.25, **options)
    assert "the server needs 1.31" in error
    assert "each 3 times while a new version loads beside those of keep_versions=2" in error
    assert "keep_versions=1" in error
    options["keep_versions"] = 4
    assert "needs 2.18" in refused(export, tmp_path, large, server_memory_gb=2.1, **options)
    export(large, labels=[], serving=ServingOptions(server_memory_gb=2.25, **options))


def test_mapped_weights_count_once_for_all_instances(export, large, tmp_path):
    options = {"runtime": "fused_onnx", "network_instances": 3, "keep_versions": 1}
    # Twice three times 29 MB, and twice a table of 80 MB: 0.33 GB.
    error = refused(export, tmp_path, large, server_memory_gb=0.32, **options)
    assert "3 of movies with 29 MB and 80 MB of weights from files as instances" in error
    assert "runtime=" not in error
    export(large, labels=[], serving=ServingOptions(server_memory_gb=0.35, **options))


def test_vectors_that_a_step_reads_from_disk_need_no_memory(export):
    vectors = np.ones((ROWS, WIDTH), np.float32)
    pipeline = Workflow(["item"] >> ops.PretrainedVectors(vectors)).fit({"item": [3, None]})
    item = keras.Input((WIDTH,), name="item")
    network = keras.Model(item, keras.layers.Dense(1)(item))
    # 21 MB with 16 bytes for the place of a vector, and 58 MB, in three versions: 0.24 GB.
    options = {"pipeline": pipeline, "labels": []}
    with pytest.raises(ExportError, match=r"weights and vocabularies of 0.0004.* needs 0\.239 GB"):
        export(network, serving=ServingOptions(server_memory_gb=0.23), **options)
    report = export(network, serving=ServingOptions(server_memory_gb=0.25), **options)
    assert report.memory["movies_nvt"].on_disk == vectors.nbytes
    assert "22 MB, and reads rows of 80 MB on disk for movies_nvt" in " ".join(str(report).split())
    # Other runtimes hold them.
    advised = r'needs 0\.41[56] GB.*runtime="tensorflow", which reads pre-trained vectors from disk'
    with pytest.raises(ExportError, match=advised):
        export(
            network,
            serving=ServingOptions(runtime="fused_tensorflow", server_memory_gb=0.2),
            **options,
        )


@pytest.mark.parametrize("runtime", ["tensorflow", "onnx", "fused_onnx", "fused_tensorflow"])
def test_the_plan_and_the_files_take_the_same_memory(export, runtime, monkeypatch):
    planned = []
    import exporter.export as export_module

    monkeypatch.setattr(
        export_module,
        "expect_server_memory",
        lambda plan, network: planned.append(planned_memory(plan, network)),
    )
    data = pl.DataFrame({"name": [f"name {n}" for n in range(20_000)]})
    pipeline = Workflow(["name"] >> ops.Categorify()).fit(data)
    network = models.mlp(get_embedding_sizes(pipeline), hidden=(4,), max_embedding_dim=64)
    report = export(network, pipeline, labels=[], serving=ServingOptions(runtime=runtime))
    assert planned[0].keys() == report.memory.keys()
    for name, memory in report.memory.items():
        assert planned[0][name].own == pytest.approx(memory.own, rel=0.05)
        assert planned[0][name].mapped == pytest.approx(memory.mapped, rel=0.02)


def test_vocabularies_too_large_for_onnx_are_said_before_tables_are_written(
    export, large, tmp_path, monkeypatch
):
    monkeypatch.setattr(wire, "PROTOBUF_BYTES", 1000)
    written = []
    monkeypatch.setattr(onnx_model, "write_tables", lambda *arguments: written.append(arguments))
    error = refused(export, tmp_path, large, runtime="fused_onnx")
    assert "Expected vocabularies that fit into an ONNX file, 2 GB. Received: " in error
    assert written == []


def test_runtimes_that_map_weights_are_no_advice_to_themselves(export, large, tmp_path):
    assert "runtime=" not in refused(export, tmp_path, large, runtime="onnx", server_memory_gb=0.01)


@pytest.mark.parametrize("memory", [0, -1, True, "8", float("nan")])
def test_memory_is_a_number(memory):
    with pytest.raises(ExportError, match="server_memory_gb as a number of GB above 0"):
        ServingOptions(server_memory_gb=memory)
