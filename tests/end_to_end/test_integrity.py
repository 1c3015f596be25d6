"""A repository that was changed or mixed by hand does not serve."""

import shutil
from dataclasses import replace

import keras
import polars as pl
import pytest
from pipelines import movielens

from exporter import ServingOptions, export_tensorflow_ensemble
from serving import ServerError, TritonServer
from workflow.wire.integrity import IntegrityError, expect_exported

CONFIG = {"name": "m_nvt", "parameters": {"published": {"string_value": "m"}}}


def export(repository, pipeline, runtime="tensorflow"):
    return export_tensorflow_ensemble(
        pipeline.model, pipeline.workflow, "m", repository, ["rating"],
        serving=ServingOptions(runtime=runtime),
    )  # fmt: skip


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def two_exports(tmp_path_factory):
    """Two generations, in a repository each."""
    repositories = [tmp_path_factory.mktemp(name) / "models" for name in "ab"]
    for repository, factor in zip(repositories, (1, 2), strict=True):
        pipeline = movielens()
        learnt = pipeline.rows.filter(pl.col("userId") != 12345)
        pipeline.workflow.fit(learnt.with_columns(pl.col("price") * factor))
        keras.utils.set_random_seed(factor)
        export(repository, replace(pipeline, model=keras.models.clone_model(pipeline.model)))
    return repositories


@pytest.fixture
def repository(two_exports, tmp_path):
    return shutil.copytree(two_exports[0], tmp_path / "models")


def test_every_changed_or_missing_file_of_a_step_is_refused(repository, tally):
    folder = repository / "m_nvt" / "1"
    expect_exported(folder, CONFIG)
    unlisted = {"manifest.json", "__pycache__"}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in unlisted]
    assert len(files) > 20
    for path in files:
        content = path.read_bytes()
        flip(path) if content else path.write_bytes(b"x")
        with pytest.raises(IntegrityError, match=f"{path.name} is not what the export wrote"):
            expect_exported(folder, CONFIG)
        path.unlink()
        with pytest.raises(IntegrityError, match=f"Expected .*{path.name}, which was exported"):
            expect_exported(folder, CONFIG)
        tally()
        path.write_bytes(content)


def test_a_step_of_another_generation_is_refused(two_exports, repository):
    folder = repository / "m_nvt" / "1"
    shutil.rmtree(folder)
    shutil.copytree(two_exports[1] / "m_nvt" / "1", folder)
    with pytest.raises(IntegrityError, match=r"is of the generation \w{16}, and .* of another"):
        expect_exported(folder, CONFIG)
    # A server that copies its models from an object store has the step alone.
    shutil.rmtree(repository / "m")
    expect_exported(folder, CONFIG)


def test_a_manifest_that_is_missing_is_refused_but_for_models_of_other_tools(repository):
    folder = repository / "m_nvt" / "1"
    (folder / "manifest.json").unlink()
    with pytest.raises(IntegrityError, match=r"Expected the manifest .*m_nvt/1/manifest\.json"):
        expect_exported(folder, CONFIG)
    expect_exported(folder, {"name": "m_nvt"})


@pytest.mark.parametrize("step", ["m_nvt", pytest.param("m_tf", marks=pytest.mark.long)])
def test_a_server_does_not_load_a_mixed_repository(step, two_exports, repository):
    shutil.rmtree(repository / step / "1")
    shutil.copytree(two_exports[1] / step / "1", repository / step / "1")
    with pytest.raises(ServerError, match="is of the generation"), TritonServer(repository):
        pass


@pytest.mark.parametrize(
    "runtime", ["fused_onnx", pytest.param("fused_tensorflow", marks=pytest.mark.long)]
)
def test_a_server_does_not_load_a_changed_fused_model(runtime, tmp_path):
    report = export(tmp_path, movielens(), runtime)
    folder = report.paths["m"]
    flip(max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size))
    with pytest.raises(ServerError, match="is not what the export wrote"), TritonServer(tmp_path):
        pass
