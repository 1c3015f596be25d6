"""A server starts from whatever a killed export leaves, and answers as one of the versions."""

import os
import shutil

import keras
import pytest
from pipelines import extremes, movielens

from exporter import export_tensorflow_ensemble
from serving import EnsembleClient, TritonServer, check_parity


def other_weights():
    pipeline = movielens()
    pipeline.model = keras.models.clone_model(pipeline.model)
    return pipeline


@pytest.mark.long
@pytest.mark.parametrize("second", [other_weights, extremes])
def test_a_server_starts_from_what_a_killed_export_leaves(second, tmp_path, monkeypatch):
    """Version 2 of the same inputs or of others, killed before the first rename, the last, or after."""
    repository, replace, left = tmp_path / "models", os.replace, []

    def export(pipeline, version):
        report = export_tensorflow_ensemble(
            pipeline.model,
            pipeline.workflow,
            "m",
            repository,
            pipeline.labels or None,
            None,
            version,
        )
        return report.generation

    def leave(source, target):
        left.append(shutil.copytree(repository, tmp_path / f"left-{len(left)}"))
        replace(source, target)

    first, second = movielens(), second()
    pipelines = {export(first, 1): first}
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", leave)
        pipelines[export(second, 2)] = second
    served = []
    for folder in (left[0], left[-1], repository):
        with TritonServer(folder) as server, EnsembleClient(server.grpc_url, "m") as client:
            pipeline = pipelines[client.contract.generation]
            assert check_parity(client, pipeline.workflow, pipeline.model, pipeline.rows)
            served.append([*pipelines].index(client.contract.generation) + 1)
    assert served == [1, 1, 2]
