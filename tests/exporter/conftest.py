"""A fitted workflow and a network that fit together, small enough to export in a blink."""

import keras
import pytest
from small_export import make_workflow

from exporter import export as export_module
from exporter import export_tensorflow_ensemble
from exporter.plan.plan import Runtime
from exporter.prove.proof import Proof
from exporter.runtimes.registry import runtime_of
from exporter.write import python_step
from training import models
from training.network import keras_network
from workflow import get_embedding_sizes


@pytest.fixture(scope="session")
def workflow():
    return make_workflow()


@pytest.fixture(scope="session")
def model(workflow):
    keras.utils.set_random_seed(0)
    return models.mlp(get_embedding_sizes(workflow), ["price"], max_embedding_dim=4)


@pytest.fixture
def export(workflow, model, tmp_path):
    def run(other=None, pipeline=None, path=None, labels=("rating",), name="movies", **options):
        return export_tensorflow_ensemble(
            model if other is None else other,
            workflow if pipeline is None else pipeline,
            name,
            tmp_path / "models" if path is None else path,
            list(labels) if labels is not None else None,
            **options,
        )

    return run


@pytest.fixture
def files_only(export, tmp_path_factory, monkeypatch):
    """Exports without TensorFlow, which does not outlive a fork: the network's files are copied.

    And of the files that the preprocessing needs only two, since each is a step where a fault may
    strike, and all are written alike.
    """
    saved = export(path=tmp_path_factory.mktemp("saved")).paths["movies_tf"]
    files = {
        p.relative_to(saved): p.read_bytes() for p in saved.glob("model.*/**/*") if p.is_file()
    }

    def write(folder):
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def without_tensorflow(name, **_):
        def prepare(_, pipeline):
            features = pipeline.features
            step = python_step.writer(features.program, features.training_data)
            return {f"{pipeline.name}_nvt": step, f"{pipeline.name}_tf": write}

        return Runtime(runtime_of(name).plan, prepare)

    monkeypatch.setattr(export_module, "runtime_of", without_tensorflow)
    monkeypatch.setattr(keras_network, "traced", lambda _, declared: (None, declared))
    monkeypatch.setattr(export_module, "prove_written", lambda *_: Proof((), (), (), 0.0))
    monkeypatch.setattr(python_step, "RUNTIME_FOLDERS", python_step.RUNTIME_FOLDERS[:2])
