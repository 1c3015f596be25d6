"""Version 2 beside version 1: all three models move together."""

import keras
import pytest
from pipelines import movielens

from exporter import ServingOptions, export_tensorflow_ensemble, verify
from serving import (
    EnsembleClient,
    ServerUnavailableError,
    TritonServer,
    UnknownModelError,
    check_parity,
)


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
        # The steps of version 1 fit the same configs, so they stay loaded, and can be asked by name.
        with EnsembleClient(server.grpc_url, "movielens_nvt", model_version="1") as old:
            assert old.predict(first.rows).equals(
                first.workflow.transform(first.rows).select(old_names(old)).collect()
            )
    # The server left no byte code behind.
    assert verify(repository, "movielens")


@pytest.mark.parametrize(
    "runtime", [pytest.param("tensorflow", marks=pytest.mark.long), "fused_onnx"]
)
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

    def ask_for_the_old_one(error, text):
        if runtime == "fused_onnx":
            assert ask("1").equals(before)
            return
        with pytest.raises(error, match=text):
            ask("1")

    export(1)
    with TritonServer(tmp_path) as server:
        before = ask()
        export(2)
        server.publish("movielens")
        assert ask().equals(before)
        assert ask("2").equals(before)
        ask_for_the_old_one(ServerUnavailableError, "had this model before")
    with TritonServer(tmp_path) as server:
        ask_for_the_old_one(UnknownModelError, "served in its newest version alone")


def old_names(client):
    return [column.name for column in client.contract.outputs]
