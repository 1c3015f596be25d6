"""Version 2 beside version 1: all three models move together."""

import keras
import pytest
from pipelines import movielens

from exporter import export_tensorflow_ensemble, verify
from serving import EnsembleClient, TritonServer, check_parity


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


def old_names(client):
    return [column.name for column in client.contract.outputs]
