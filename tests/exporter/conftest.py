"""A fitted workflow and a network that fit together, small enough to export in a blink."""

import shutil
from dataclasses import replace

import keras
import pytest
from small_export import make_workflow

from exporter import ServingOptions, export_tensorflow_ensemble
from exporter import export as export_module
from exporter.plan.plan import Runtime
from exporter.prove.proof import Proof, prove_written
from exporter.runtimes.registry import runtime_of
from exporter.write import python_step
from training import models
from training.network import keras_network
from training.network.load import as_network
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


@pytest.fixture(scope="session")
def written_before(tmp_path_factory):
    """The files that `written_once` keeps, by the arguments of an export, and their folder."""
    return {}, tmp_path_factory.mktemp("written")


@pytest.fixture
def written_once(model, workflow, written_before, tmp_path):
    """Exports that trace, write and prove a network at the first time, and copy its files later.

    What a repository makes of these files is the same, and takes a fifth of the time.
    """
    exports, folder = written_before

    def run(
        other=None,
        pipeline=None,
        path=None,
        labels=("rating",),
        name="movies",
        serving=None,
        version=None,
        storage_options=None,
    ):
        serving = serving or ServingOptions()
        subject = (other or model, pipeline or workflow, serving.golden_rows)
        key = (*map(id, subject), *labels, name, repr(replace(serving, keep_versions=2)))
        # The subject stays, so that no other one gets its id.
        _, found, place = exports.setdefault(key, (subject, {}, folder / str(len(exports))))
        path = path or tmp_path / "models"
        with pytest.MonkeyPatch.context() as patch:
            copy_what_is_found(patch, found, place)
            return export_tensorflow_ensemble(
                *subject[:2],
                name,
                path,
                list(labels),
                version=version,
                serving=serving,
                storage_options=storage_options,
            )

    return run


def copy_what_is_found(patch, found, place):
    """Exports of one network take what was found, and keep what was not."""

    def once(name, make):
        return lambda *given: found[name] if name in found else found.setdefault(name, make(*given))

    def runtime(name, **options):
        real = runtime_of(name, **options)
        prepare = once("writers", real.prepare)
        return Runtime(real.plan, lambda *given: copies(prepare(*given)))

    def copies(writers):
        return {name: copy_of(name, write) for name, write in writers.items()}

    def copy_of(name, write):
        def copied(target):
            if not (place / name).exists():
                write(target)
                shutil.copytree(target, place / name)
            else:
                shutil.copytree(place / name, target, dirs_exist_ok=True)

        return copied

    patch.setattr(export_module, "runtime_of", runtime)
    patch.setattr(export_module, "as_network", once("network", as_network))
    patch.setattr(export_module, "prove_written", once("proof", prove_written))


@pytest.fixture(scope="session")
def network_files(model, workflow, tmp_path_factory):
    """The files of an exported network, by their paths."""
    report = export_tensorflow_ensemble(
        model, workflow, "movies", tmp_path_factory.mktemp("saved"), ["rating"]
    )
    saved = report.paths["movies_tf"]
    return {p.relative_to(saved): p.read_bytes() for p in saved.glob("model.*/**/*") if p.is_file()}


@pytest.fixture
def files_only(network_files, monkeypatch):
    """Exports without TensorFlow, which does not outlive a fork: the network's files are copied.

    And of the files that the preprocessing needs only two, since each is a step where a fault may
    strike, and all are written alike.
    """

    def write(folder):
        for path, content in network_files.items():
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
    monkeypatch.setattr(keras_network, "is_half", lambda _: False)
    monkeypatch.setattr(export_module, "prove_written", lambda *_: Proof((), (), (), 0.0))
    monkeypatch.setattr(python_step, "RUNTIME_FOLDERS", python_step.RUNTIME_FOLDERS[:2])
