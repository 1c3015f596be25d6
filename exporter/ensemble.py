"""export_tensorflow_ensemble: a workflow and a network as a Triton ensemble."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import triton_models.preprocess
import workflow as workflow_package
from exporter.config import config_text
from exporter.content import file_hash, file_hashes, generation_of
from exporter.errors import ExportError
from exporter.features import select_features
from exporter.options import ServingOptions
from exporter.plan import Plan, make_plan
from exporter.publish import (
    CONFIG,
    MANIFEST,
    compatible_versions,
    expect_free,
    publish,
    recover,
)
from exporter.report import ExportReport
from exporter.runtimes import tensorflow
from exporter.staging import exclusive, staging, write_errors
from training.errors import TrainingError
from training.signature import model_signature
from workflow import Workflow, WorkflowError
from workflow.expressions import RUNTIME_FILES

RUNTIME_PACKAGE = "preprocess_runtime"


def export_tensorflow_ensemble(
    model: Any,
    workflow: Workflow,
    name: str,
    model_path: str | os.PathLike[str],
    label_columns: Sequence[str] | None = None,
    sparse_max: Mapping[str, int] | None = None,
    version: int = 1,
    nvtabular_backend: str = "python",
    cats: Sequence[str] | None = None,
    conts: Sequence[str] | None = None,
    *,
    serving: ServingOptions | None = None,
) -> ExportReport:
    """Write a Triton ensemble: preprocessing as `<name>_nvt`, network as `<name>_tf`, both as `<name>`.

    Everything is planned and proven to fit before the first byte is written, and the repository
    gets the new version whole or not at all. What a killed export left is cleaned up by the next
    one of that name. A second export into the same repository waits for the first. The model and
    the workflow are not changed.

    Args:
        model: a Keras model with named inputs; a list column `x` is the pair of inputs
            `x__values` and `x__nnzs`. Its inputs decide the dtypes that are served.
        workflow: fitted; outputs that the network does not take are left out.
        name: the ensemble's name.
        model_path: the model repository; made if missing.
        label_columns: columns that training had and a request has not; by default those tagged
            as target.
        sparse_max: for lists of a fixed length; not supported yet.
        version: the version folder of all three models. An older version stays on disk, and
            stays loadable where its inputs and outputs are the same.
        nvtabular_backend: "python", the only one left.
        cats: not needed any more: the network's inputs say which columns it takes.
        conts: likewise.
        serving: how it is to be served.

    Returns:
        a report; printing it shows what each model takes and gives, and every cast.

    Raises:
        ExportError: the model and the workflow do not fit, a setting makes no sense, the version
            exists already, or the repository cannot be written. Nothing is left behind.

    Example:
        >>> report = export_tensorflow_ensemble(
        ...     model, workflow, "movielens", "models", ["rating"]
        ... )  # doctest: +SKIP
    """
    _expect_known_arguments(sparse_max, nvtabular_backend, cats, conts)
    plan = _plan(model, workflow, name, label_columns, version, serving or ServingOptions())
    repository = Path(model_path)
    models = [spec.name for spec in plan.models]
    with write_errors(repository), exclusive(repository) as alone:
        if alone:
            recover(repository, name)
        expect_free(repository, models, version)
        with staging(repository, name) as stage:
            generation = _write(stage, repository, plan, model)
            publish(stage, repository, models, version)
    return ExportReport(repository, plan.of_generation(generation), generation)


def _expect_known_arguments(sparse_max: Any, backend: str, cats: Any, conts: Any) -> None:
    if sparse_max:
        raise ExportError(
            "sparse_max is not supported yet. Serve the list as <name>__values and <name>__nnzs."
        )
    if backend != "python":
        raise ExportError(f'Expected nvtabular_backend="python". Received: {backend!r}.')
    if cats is not None or conts is not None:
        raise ExportError(
            "cats and conts are not needed: the network's inputs say which columns it takes."
        )


def _plan(
    model: Any,
    workflow: Workflow,
    name: str,
    labels: Sequence[str] | None,
    version: int,
    options: ServingOptions,
) -> Plan:
    try:
        signature = model_signature(model)
        features = select_features(workflow, signature, labels)
    except (TrainingError, WorkflowError) as error:
        raise ExportError(str(error)) from error
    return make_plan(features, signature, name, version, options)


def _write(stage: Path, repository: Path, plan: Plan, model: Any) -> str:
    """Write all files of an export into the staging folder; returns the generation."""
    folders = {m.name: stage / m.name / str(m.version) for m in plan.models}
    for folder in folders.values():
        folder.mkdir(parents=True)
    _write_preprocess(folders[plan.preprocess.name], plan)
    tensorflow.write(model, folders[plan.network.name])
    hashes = {name: file_hashes(folder) for name, folder in folders.items()}
    generation = generation_of(hashes)
    configs = {}
    for spec in plan.of_generation(generation).models:
        older = [] if spec.steps else compatible_versions(repository, config_text(spec))
        path = stage / spec.name / CONFIG
        path.write_text(config_text(spec, older))
        configs[spec.name] = file_hash(path)
    manifest = {"generation": generation, "models": hashes, "configs": configs}
    (folders[plan.ensemble.name] / MANIFEST).write_text(json.dumps(manifest, indent=1))
    return generation


def _write_preprocess(folder: Path, plan: Plan) -> None:
    """The program, the model that runs it, and the files of ours that this needs, word for word."""
    plan.features.program.save(folder)
    source = Path(triton_models.preprocess.__file__).parent
    shutil.copyfile(source / "model.py", folder / "model.py")
    package = Path(workflow_package.__file__).parent
    for name in RUNTIME_FILES:
        target = folder / RUNTIME_PACKAGE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / name, target)
    (folder / RUNTIME_PACKAGE / "__init__.py").write_text(
        '"""What preprocessing needs, as it was when exported."""\n'
    )
