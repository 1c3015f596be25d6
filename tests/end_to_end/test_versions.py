"""Version 2 beside version 1: all three models move together."""

import keras
import pytest
from pipelines import movielens

from exporter import ExportError, ServingOptions, export_tensorflow_ensemble, rollback, verify
from serving import (
    EnsembleClient,
    ServerError,
    ServerUnavailableError,
    TritonServer,
    UnknownModelError,
    check_parity,
)
from triton_models.healthcheck import fetch


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory):
    repository = tmp_path_factory.mktemp("versions")
    first = movielens()
    export_tensorflow_ensemble(first.model, first.workflow, "movielens", repository, ["rating"])
    second = movielens()
    second.model = keras.models.clone_model(first.model)
    export_tensorflow_ensemble(
        second.model, second.workflow, "movielens", repository, ["rating"], version=2
    )
    return repository, first, second


def test_the_server_answers_with_version_2(two_versions):
    repository, first, second = two_versions
    assert verify(repository, "movielens") != verify(repository, "movielens", version=1)
    with TritonServer(repository) as server, EnsembleClient(server.grpc_url, "movielens") as client:
        assert check_parity(client, second.workflow, second.model, second.rows)
        assert not check_parity(client, first.workflow, first.model, first.rows)
        assert client.contract.generation == verify(repository, "movielens", version=2)
        # The steps of version 1 fit the same configs, so they stay loadable by name.
        with EnsembleClient(server.grpc_url, "movielens_nvt", model_version="1") as old:
            assert old.predict(first.rows).equals(
                first.workflow.transform(first.rows).select(old_names(old)).collect()
            )
    # The server left no byte code behind.
    assert verify(repository, "movielens")


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_onnx"])
def test_which_old_version_can_be_asked_for(runtime, tmp_path):
    """A fused model's, and no ensemble's: its one config names one version of each step."""
    pipeline, serving = movielens(), ServingOptions(runtime=runtime)

    def export(version):
        export_tensorflow_ensemble(
            pipeline.model, pipeline.workflow, "movielens", tmp_path, ["rating"], None, version,
            serving=serving,
        )  # fmt: skip

    def ask(version=""):
        with EnsembleClient(server.grpc_url, "movielens", model_version=version) as client:
            return client.predict(pipeline.rows)

    def ask_for_the_old_one(error):
        if runtime == "fused_onnx":
            assert ask("1").equals(before)
            return
        with pytest.raises(error, match="An ensemble is served in its newest version alone"):
            ask("1")

    export(1)
    with TritonServer(tmp_path) as server:
        before = ask()
        export(2)
        server.load("movielens")
        assert ask().equals(before)
        assert ask("2").equals(before)
        ask_for_the_old_one(ServerUnavailableError)
    with TritonServer(tmp_path) as server:
        ask_for_the_old_one(UnknownModelError)


def test_a_broken_version_leaves_the_old_one_serving(tmp_path):
    """And the way back is one rename and a load; an ensemble of other steps drops the old ones."""
    pipeline = movielens()

    def export(version, **options):
        return export_tensorflow_ensemble(
            pipeline.model, pipeline.workflow, "movielens", tmp_path, ["rating"], None, version,
            serving=ServingOptions(**options),
        )  # fmt: skip

    def loaded():
        url = f"{server.http_url}/v2/repository/index"
        index = fetch(url, {}, timeout=10, headers=server.admin_headers)
        return {model["name"] for model in index if model.get("state") == "READY"}

    export(1)
    with TritonServer(tmp_path) as server, EnsembleClient(server.grpc_url, "movielens") as client:
        before = client.predict(pipeline.rows)
        broken = export(2).paths["movielens_tf"] / "model.savedmodel" / "saved_model.pb"
        broken.write_bytes(b"")
        with pytest.raises(ServerError, match="is not what the export wrote"):
            server.load("movielens")
        assert client.predict(pipeline.rows).equals(before)
        with pytest.raises(ExportError, match=r"saved_model\.pb is not what the export wrote"):
            verify(tmp_path, "movielens")
        assert rollback(tmp_path, "movielens") == 1
        server.load("movielens")
        assert client.predict(pipeline.rows).equals(before)
        report = export(3, preprocess_instances=2)
        server.load("movielens")
        assert client.predict(pipeline.rows).equals(before)
        assert loaded() == {model.name for model in report.plan.models}
        assert report.plan.models[0].name == f"movielens_nvt_{report.generation}"


def old_names(client):
    return [column.name for column in client.contract.outputs]
