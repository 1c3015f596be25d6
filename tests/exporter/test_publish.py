"""A repository holds the old version or the new one, whatever happens, and says if it was changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_export import rows, tree

from exporter import ExportError, verify
from exporter.config import parse_config
from workflow.expressions.column import Column
from workflow.expressions.series import to_column
from workflow.wire import encode, parse_columns

MODELS = ("movies_nvt", "movies_tf", "movies")


def config(repository, model):
    return parse_config((repository / model / "config.pbtxt").read_text())


def test_version_2_beside_version_1(export, tmp_path):
    export()
    first = {k: v for k, v in tree(tmp_path / "models").items() if "/1" in k}
    export(version=2)
    after = tree(tmp_path / "models")
    assert {k: v for k, v in after.items() if "/1" in k} == first
    repository = tmp_path / "models"
    for model in MODELS:
        assert (repository / model / "2").is_dir()
    assert list(config(repository, "movies").version_policy.specific.versions) == [2]
    assert [s.model_version for s in config(repository, "movies").ensemble_scheduling.step] == [
        2,
        2,
    ]
    for step in MODELS[:2]:
        assert list(config(repository, step).version_policy.specific.versions) == [1, 2]
    assert verify(repository, "movies", 1)
    assert verify(repository, "movies") == verify(repository, "movies", 2)


def test_an_older_version_of_another_shape_is_not_loadable(export, tmp_path, workflow):
    import keras

    export()
    inputs = {"userId": keras.Input((1,), name="userId", dtype="int64")}
    other = keras.Model(
        inputs, keras.layers.Dense(1, name="other")(keras.ops.cast(inputs["userId"], "float32"))
    )
    export(other, workflow, version=2)
    for model in MODELS:
        assert list(config(tmp_path / "models", model).version_policy.specific.versions) == [2]


def test_neither_model_nor_workflow_is_changed(export, model, workflow, tmp_path):
    workflow.save(tmp_path / "before")
    weights = [w.copy() for w in model.get_weights()]
    settings, dtypes = model.get_config(), dict(workflow.output_dtypes)
    export()
    workflow.save(tmp_path / "after")
    assert tree(tmp_path / "before") == tree(tmp_path / "after")
    assert model.get_config() == settings
    assert dict(workflow.output_dtypes) == dtypes
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_equal_exports_have_one_generation_and_others_another(export, tmp_path):
    one = export(path=tmp_path / "a").generation
    report = export(path=tmp_path / "b", name="movies")
    assert len(one) == 16
    assert (
        config(report.repository, "movies").parameters["generation"].string_value
        == report.generation
    )
    program = (report.repository / "movies_nvt" / "1" / "program.json").read_bytes()
    assert program == (tmp_path / "a" / "movies_nvt" / "1" / "program.json").read_bytes()


def test_one_changed_byte_of_any_file_is_found(export):
    report = export()
    files = [
        p
        for folder in report.paths.values()
        for p in folder.rglob("*")
        if p.is_file() and p.stat().st_size
    ]
    assert len(files) > 12
    for path in files:
        if path.name == "manifest.json":
            continue
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ExportError, match=path.name.replace(".", r"\.")):
            verify(report.repository, "movies")
        path.write_bytes(content)
    verify(report.repository, "movies")


def test_missing_and_new_files_are_found(export):
    report = export()
    folder = report.paths["movies_nvt"]
    (folder / "extra.py").write_text("")
    with pytest.raises(ExportError, match=r"did not write: extra\.py"):
        verify(report.repository, "movies")
    (folder / "extra.py").unlink()
    (folder / "model.py").unlink()
    with pytest.raises(ExportError, match=r"model\.py is missing"):
        verify(report.repository, "movies")
    with pytest.raises(ExportError, match="Expected the manifest"):
        verify(report.repository, "movies", 7)
    with pytest.raises(ExportError, match="Expected the ensemble's config"):
        verify(report.repository, "none")


# Runs an export, and does something at its n-th call that changes the file system.
SABOTAGE = """
import errno, os, pathlib, signal, sys
sys.path[:0] = sys.argv[4:]
step, how, repository = int(sys.argv[1]), sys.argv[2], sys.argv[3]
from small_export import make_workflow
from exporter import ExportError, export_tensorflow_ensemble
from training import models
from workflow import get_embedding_sizes
workflow = make_workflow()
model = models.mlp(get_embedding_sizes(workflow), ["price"], max_embedding_dim=4)
calls = 0
def wrap(original):
    def call(*arguments, **options):
        global calls
        if repository in " ".join(map(str, arguments)):
            calls += 1
            if calls == step:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments, **options)
    return call
for name in ("rename", "replace", "mkdir"):
    setattr(os, name, wrap(getattr(os, name)))
pathlib.Path.write_text = wrap(pathlib.Path.write_text)
import shutil
shutil.copyfile = wrap(shutil.copyfile)
try:
    export_tensorflow_ensemble(model, workflow, "movies", repository, ["rating"], version=2)
except ExportError as error:
    print(error)
    sys.exit(3)
print("calls", calls)
"""


def sabotage(step, how, repository):
    paths = [str(Path(__file__).parent)]
    return subprocess.run(
        [sys.executable, "-c", SABOTAGE, str(step), how, str(repository), *paths],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )


@pytest.mark.parametrize("step", [3, 9, 20])
def test_a_full_disk_leaves_the_repository_as_it_was(step, export, tmp_path):
    export()
    before = tree(tmp_path / "models")
    result = sabotage(step, "full", tmp_path / "models")
    assert result.returncode == 3, result.stderr
    assert "Expected to be able to write to" in result.stdout
    assert "No space left" in result.stdout
    assert tree(tmp_path / "models") == before


@pytest.mark.parametrize("step", [2, 18, 19, 20, 21, 22])
def test_a_killed_export_leaves_a_whole_ensemble(step, export, tmp_path):
    """The ensemble pins versions that are there, with configs that allow them."""
    export()
    repository = tmp_path / "models"
    result = sabotage(step, "kill", repository)
    assert result.returncode == -9, result.stdout + result.stderr
    pinned = {
        s.model_name: s.model_version for s in config(repository, "movies").ensemble_scheduling.step
    }
    assert set(pinned.values()) in ({1}, {2})
    for model, version in pinned.items():
        assert version in config(repository, model).version_policy.specific.versions
    assert verify(repository, "movies", next(iter(pinned.values())))


STUB = """
import json, sys, types
class Tensor:
    def __init__(self, name, array): self._name, self._array = name, array
    def name(self): return self._name
    def as_numpy(self): return self._array
class TritonError:
    INVALID_ARG, INTERNAL = "invalid", "internal"
    def __init__(self, text, code): self.text, self.code = text, code
class InferenceResponse:
    def __init__(self, tensors=None, error=None): self.tensors, self.error = tensors, error
class Logger:
    log_warn = log_error = staticmethod(print)
pb = types.ModuleType("triton_python_backend_utils")
pb.Tensor, pb.TritonError, pb.InferenceResponse, pb.Logger = Tensor, TritonError, InferenceResponse, Logger
sys.modules["triton_python_backend_utils"] = pb
folder, numpy_at, config, request, answer = sys.argv[1:]
sys.path.insert(0, numpy_at)
import numpy as np
before = set(sys.modules)
sys.path.insert(0, folder)
import importlib.util
spec = importlib.util.spec_from_file_location("model", folder + "/model.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model = module.TritonPythonModel()
model.initialize({"model_config": config})
arrays = np.load(request, allow_pickle=False)
class Request:
    def inputs(self):
        return [Tensor(n, a.astype(object) if a.dtype.kind == "S" else a) for n, a in arrays.items()]
(response,) = model.execute([Request()])
assert response.error is None, response.error.text
np.savez(answer, **{t.name(): t.as_numpy() for t in response.tensors})
foreign = {m.split(".")[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(sorted(foreign))
"""


def test_the_exported_preprocessing_needs_numpy_and_nothing_else(export, workflow, tmp_path):
    report = export()
    numpy_only = tmp_path / "site"
    numpy_only.mkdir()
    for package in Path(np.__file__).parent.parent.glob("numpy*"):
        (numpy_only / package.name).symlink_to(package)
    columns = {c.name: c for c in parse_columns(report.plan.preprocess.parameters["inputs"])}
    sent = {}
    for name, column in columns.items():
        sent |= encode(column, to_column(rows()[name]))
    np.savez(
        tmp_path / "in.npz",
        **{n: a.astype("S") if a.dtype == object else a for n, a in sent.items()},
    )
    parameters = {k: {"string_value": v} for k, v in report.plan.preprocess.parameters.items()}
    arguments = [json.dumps({"parameters": parameters}), tmp_path / "in.npz", tmp_path / "out.npz"]
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        STUB,
        report.paths["movies_nvt"],
        numpy_only,
        *arguments,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "['numpy', 'preprocess_runtime']"
    served = np.load(tmp_path / "out.npz")
    offline = workflow.transform(rows()).collect()
    for column in report.plan.features.outputs:
        expected = encode(column, Column(**vars(to_column(offline[column.name]))))
        for name, array in expected.items():
            np.testing.assert_array_equal(served[name], array)
