"""One repository with every pipeline, exported for real, and one real server for it."""

import pytest
from pipelines import PIPELINES

from exporter import export_tensorflow_ensemble
from serving import EnsembleClient, TritonServer


@pytest.fixture(scope="session")
def pipelines():
    return {name: make() for name, make in PIPELINES.items()}


@pytest.fixture(scope="session")
def repository(pipelines, tmp_path_factory):
    repository = tmp_path_factory.mktemp("models")
    for name, pipeline in pipelines.items():
        export_tensorflow_ensemble(
            pipeline.model, pipeline.workflow, name, repository, pipeline.labels
        )
    return repository


@pytest.fixture(scope="session")
def server(repository):
    with TritonServer(repository) as server:
        yield server


@pytest.fixture
def client(server):
    opened = []

    def connect(name):
        opened.append(EnsembleClient(server.grpc_url, name))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()
