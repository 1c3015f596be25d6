"""A workflow and a network as a Triton model repository."""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any

from exporter.columns.embeddings import (
    expect_own_names,
    expect_room,
    expect_same_fit,
    spare_tables,
)
from exporter.columns.hashed_bytes import expect_no_hashed_bytes
from exporter.columns.served_columns import expect_no_lists, select_features
from exporter.errors import ExportError
from exporter.plan.config_pbtxt import config_text
from exporter.plan.golden_values import warn_of_null_codes
from exporter.plan.model_spec import ModelSpec
from exporter.plan.options import DEFAULT_LIMITS, ServingOptions
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Plan, Runtime, Writer, make_plan
from exporter.plan.runtime import AUTO, RUNTIMES, runtimes_for
from exporter.prove.offline import OfflineAnswers
from exporter.prove.proof import Proof, UnprovenError, prove_written
from exporter.prove.recall import measure_recall
from exporter.prove.served import prove_served
from exporter.report.memory import expect_server_memory, folder_bytes, instance_memory
from exporter.report.report import ExportReport
from exporter.repository.contract_changes import contract_changes
from exporter.repository.manifest import (
    Manifest,
    file_hashes,
    generation_of,
)
from exporter.repository.object_store import StoredRepository
from exporter.repository.publish import (
    changing,
    compatible_versions,
    expect_free,
    expect_published,
    next_version,
    publish,
    published_version,
    step_names,
)
from exporter.repository.staging import staging
from exporter.repository.verify import unchanged
from exporter.repository.versions import collect, complete_rollback
from exporter.runtimes.registry import runtime_of
from serving.embedded.golden import GOLDEN, write_golden
from training.errors import TrainingError
from training.network.load import as_network
from training.network.nearest_items import NearestNetwork
from training.network.network import Network, tolerance_of
from workflow import Workflow, WorkflowError
from workflow.data.object_stores import Objects, expect_whole, is_url
from workflow.files.durable import file_hash
from workflow.files.repository import CONFIG, WARM_UP
from workflow.progress.stage import at_work, showing

# A search computes a float32 for each row of a request and each item: 1 GiB.
MOST_SCORES = 2**28
# In a staging folder, beside the models, whose names do not begin with a dot.
OTHERS = ".others"


def export_ensemble(
    network: Any,
    workflow: Workflow,
    name: str,
    path: str | os.PathLike[str],
    labels: Sequence[str] | None = None,
    *,
    sparse_max: Mapping[str, int] | None = None,
    version: int | None = None,
    serving: ServingOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write a workflow and a network of any library as a Triton model repository.

    Steps and their names depend on the runtime, see `ServingOptions`: preprocessing as `<name>_nvt`
    and the network as `<name>_tf` or `<name>_onnx` inside the ensemble `<name>`, or one model
    `<name>`. In any case clients use `<name>`.

    Everything is planned and checked before the first byte is written. The written models must then
    answer golden rows (nulls, unseen values, empty and long lists, the last value of every
    vocabulary, the limits of every dtype) as the workflow and the network do in this process, and in
    a server too if `ServingOptions.prove` says so. The repository gets the new version completely or
    not at all. The next export of the same name removes the remains of a killed one. A second export
    into the same repository waits for the first. The model and the workflow are not changed.

    Args:
        network: a Keras model with named inputs, the path of a `.keras` file or of a SavedModel, or
            an ONNX model as a `ModelProto` or the path of an `.onnx` file, as PyTorch, scikit-learn,
            LightGBM and XGBoost convert theirs to; or one of these in `NearestItems`, with the
            items of which it finds the best. Its inputs are columns of the workflow and
            determine the served dtypes; a list column `x` is the pair of inputs `x__values` and
            `x__nnzs`. For other names, and for a matrix of columns, see `ServingOptions.columns`.
        workflow: a fitted workflow; outputs that the network does not take are ignored.
        name: the ensemble's name.
        path: the model repository; made if missing. Or a folder of an object store without a model of
            these names, such as "s3://bucket/models": the repository is written and proven in a
            temporary folder of this machine, which needs room for it, and then copied in an order in
            which a server never loads a part. Each later version needs a folder of its own there.
        labels: columns of the training data that requests lack; by default those tagged as target.
            The network's outputs keep their own names.
        sparse_max: the width of each list that the network takes as one input of a fixed width
            (`keras.Input((5,), name="genres")`), checked here; longer lists are cut, shorter ones
            padded with 0. Without it the network's input determines the width; with it a client
            cuts a list before sending it if the rest would not be used.
        version: the version folder of all models, above the published one, and written in any case.
            By default the version after the published one, unless nothing has changed: the same
            workflow, network and options give the same files in every process, and if these are
            published, they stay, and `report.published` is False. The previous version stays on
            disk for `rollback` (`ServingOptions.keep_versions`). A fused model serves it beside the
            newest if its inputs and outputs are the same, to clients that request it by
            `model_version`; an ensemble serves its newest version only.
        serving: how to serve it.
        storage_options: how to connect to the object store of `path`, as in `Workflow.fit`.

    Returns:
        A report; printing it shows the inputs and outputs of each model, every cast, and the golden
        rows of the proof.

    Raises:
        ExportError: the network and the workflow do not fit, a setting is invalid, the version
            exists already, the repository cannot be written, a written model answers a golden row
            differently, or the models need more than `ServingOptions.server_memory_gb`. Nothing is
            left behind.

    Example:
        >>> report = export_ensemble(
        ...     "clicks.onnx", workflow, "clicks", "models", ["clicked"],
        ...     serving=ServingOptions(columns={"features": ["age", "price"]}),
        ... )  # doctest: +SKIP
    """
    _expect_types(workflow, path, labels, sparse_max, serving)
    serving = serving or ServingOptions()
    stored = _stored(path, storage_options)
    with showing("export", progress=serving.progress), ExitStack() as stack:
        folder = Path(path)
        if stored is not None:
            # A killed process leaves the folder, whose name says what it is.
            temporary = stack.enter_context(TemporaryDirectory(prefix="ensemble-export-"))
            folder = Path(temporary) / "models"
        try:
            report = _export(
                network, workflow, name, folder, labels, sparse_max, version, serving, stored
            )
        except TrainingError as error:  # the network cannot be served
            raise ExportError(str(error)) from error
        if stored is None:
            return report
        at_work("copy to the store")
        stored.copy(folder, [spec.name for spec in report.plan.models])
        return replace(report, repository=stored.url)


def export_tensorflow_ensemble(
    model: Any,
    workflow: Workflow,
    name: str,
    model_path: str | os.PathLike[str],
    label_columns: Sequence[str] | None = None,
    sparse_max: Mapping[str, int] | None = None,
    version: int | None = None,
    nvtabular_backend: str = "python",
    cats: Sequence[str] | None = None,
    conts: Sequence[str] | None = None,
    *,
    serving: ServingOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write a Triton ensemble, with the arguments of NVTabular's function: see `export_ensemble`.

    By default preprocessing is `<name>_nvt`, the network `<name>_tf`, and both are `<name>`.

    Args:
        model: the network.
        workflow: a fitted workflow.
        name: the ensemble's name.
        model_path: the model repository; made if missing. Or a folder of an object store.
        label_columns: columns of the training data that requests lack.
        sparse_max: the width of each list that the network takes as one input.
        version: the version folder of all models.
        nvtabular_backend: "python", the only remaining one.
        cats: refused: the network's inputs name the columns it takes.
        conts: likewise.
        serving: how to serve it.
        storage_options: how to connect to the object store of `model_path`.

    Returns:
        A report.

    Raises:
        ExportError: as `export_ensemble`.

    Example:
        >>> report = export_tensorflow_ensemble(
        ...     model, workflow, "movielens", "models", ["rating"]
        ... )  # doctest: +SKIP
    """
    _expect_known_arguments(nvtabular_backend, cats, conts)
    return export_ensemble(
        model,
        workflow,
        name,
        model_path,
        label_columns,
        sparse_max=sparse_max,
        version=version,
        serving=serving,
        storage_options=storage_options,
    )


def _expect_known_arguments(backend: str, cats: Any, conts: Any) -> None:
    if backend != "python":
        raise ExportError(f'Expected nvtabular_backend="python". Received: {backend!r}.')
    if cats is not None or conts is not None:
        raise ExportError(
            "cats and conts are not needed: the network's inputs name the columns that it takes."
        )


def _stored(path: Any, storage_options: Mapping[str, Any] | None) -> StoredRepository | None:
    """The repository in an object store, if the path is in one."""
    if is_url(path):
        return StoredRepository(path, storage_options)
    try:
        expect_whole(path)
        Objects(storage_options).expect_used()
    except WorkflowError as error:
        raise ExportError(str(error)) from error
    return None


def _export(
    given_network: Any,
    workflow: Workflow,
    name: str,
    repository: Path,
    labels: Sequence[str] | None,
    sparse_max: Mapping[str, int] | None,
    version: int | None,
    serving: ServingOptions,
    stored: StoredRepository | None,
) -> ExportReport:
    at_work("plan")
    workflow = copy.copy(workflow)  # which another thread may fit meanwhile
    network = as_network(given_network, serving.columns)
    expect_own_names(network, workflow)
    options = replace(
        serving,
        columns=network.columns,
        runtime=_runtime(network, serving),
        max_rows=_most_rows(network, serving),
    )
    if RUNTIMES[options.runtime].in_tensorflow:
        _expect_literal(repository.resolve())
    plan = _plan(network, workflow, name, labels, sparse_max, version, options)
    models = [spec.name for spec in plan.models]
    if stored is not None:
        stored.expect_new(models)
    if not options.other_fit:
        expect_same_fit(network, workflow)
    expect_room(network, plan.features)
    expect_server_memory(plan, network)
    warn_of_null_codes(
        plan.pipeline.client_columns, plan.features.program, plan.features.training_data
    )
    spare = spare_tables(network, plan.features)
    answers = OfflineAnswers(workflow, plan.features, network)
    at_work("write the models")
    writers = _runtime_of(plan.pipeline).prepare(network, plan.pipeline)
    with changing(repository, name) as alone:
        if alone:
            complete_rollback(repository, name)
        if version is None:
            plan = _with_version(plan, next_version(repository, name))
        expect_free(repository, models, plan.published.version)
        changes = contract_changes(repository, plan.published)
        with staging(repository, name) as stage:
            _write_models(_folders(stage, plan), writers)
            at_work("answer golden rows")
            proof = _proven(stage, plan, network, answers)
            recall = _recall(network, plan, answers)
            staged, plan = plan, _sealed(stage, repository, plan, proof)
            generation, number = plan.published.parameters["generation"], plan.published.version
            same = unchanged(stage, repository, name, number) if version is None else None
            if same is None:
                proof = prove_served(stage, plan, proof)
                publish(stage, repository, [spec.name for spec in plan.models], number)
            else:
                plan = _with_version(staged, expect_published(repository, name))
                names = dict(zip((spec.name for spec in plan.models), same.models, strict=True))
                plan = plan.published_as(names, generation)
        if options.keep_versions is not None:
            collect(repository, name, options.keep_versions)
    published = same is None
    return _report(repository, plan, generation, proof, spare, recall, changes, published=published)


def _expect_literal(repository: Path) -> None:
    """Refuse a path that TensorFlow, which takes it for a pattern, does not find again."""
    path = str(repository)
    if "\\" in path or not fnmatchcase(path, path):
        raise ExportError(
            "Expected a model repository in a path without brackets and backslashes, which TensorFlow takes "
            f"for a pattern when it loads a SavedModel. Received: {path}. Name another folder, or export "
            'with runtime="onnx" or "fused_onnx".'
        )


def _recall(network: Network, plan: Plan, answers: OfflineAnswers) -> dict[str, float]:
    """The recall of the index, if the network searches one."""
    if not isinstance(network, NearestNetwork) or network.index is None:
        return {}
    at_work("measure the recall")
    return measure_recall(network.index, network.k, plan.golden, answers)


def _report(
    repository: Path,
    plan: Plan,
    generation: str,
    proof: Proof,
    spare: tuple[str, ...],
    recall: Mapping[str, float],
    changes: tuple[str, ...],
    *,
    published: bool,
) -> ExportReport:
    folders = _folders(repository, plan)
    sizes = {name: sum(folder_bytes(folder)) for name, folder in folders.items()}
    memory = instance_memory(plan, folders)
    return ExportReport(
        repository, plan, generation, proof, sizes, memory, published, spare, recall, changes
    )


def _expect_types(workflow: Any, path: Any, labels: Any, sparse_max: Any, serving: Any) -> None:
    for name, value, kind, words in (
        ("workflow", workflow, Workflow, "a fitted Workflow; Workflow.load reads a saved one"),
        ("the model repository", path, (str, os.PathLike), "a path"),
        ("the labels", labels, (list, tuple, NoneType), 'a list of names such as ["rating"]'),
        ("sparse_max", sparse_max, (Mapping, NoneType), 'widths by column, such as {"genres": 5}'),
        ("serving", serving, (ServingOptions, NoneType), "ServingOptions"),
    ):
        # An empty path would be the current folder.
        if not isinstance(value, kind) or value == "":
            raise ExportError(f"Expected {name} as {words}. Received: {value!r:.100}.")


def _runtime(network: Network, options: ServingOptions) -> str:
    """The name of the runtime, which can serve the network."""
    possible = _possible(network)
    if options.runtime == AUTO:
        return possible[0]
    if options.runtime not in possible:
        kind = "an ONNX network" if not network.in_tensorflow else "a search for items"
        reason = "runs the network in TensorFlow"
        if _is_by_index(network) and RUNTIMES[options.runtime].is_fused:
            kind = "a search in an index, as a step of its own (an exact one is without index=)"
            reason = "is one model"
        raise ExportError(
            f"Expected runtime among {', '.join(possible)}, which serve {kind}. "
            f"Received: {options.runtime!r}, which {reason}."
        )
    return options.runtime


def _most_rows(network: Network, options: ServingOptions) -> int | None:
    """The option `max_rows`; by default as many rows as a search for items has memory for."""
    if options.max_rows or options.max_batch_size:
        return options.max_rows
    if not isinstance(network, NearestNetwork) or network.by_index:
        return None
    rows = max(1, MOST_SCORES // len(network.items.ids))
    return rows if rows < DEFAULT_LIMITS["max_rows"] else None


def _possible(network: Network) -> tuple[str, ...]:
    return runtimes_for(
        in_tensorflow=network.in_tensorflow,
        finds_items=isinstance(network, NearestNetwork),
        by_index=_is_by_index(network),
    )


def _is_by_index(network: Network) -> bool:
    return isinstance(network, NearestNetwork) and network.by_index


def _runtime_of(pipeline: Pipeline) -> Runtime:
    return runtime_of(pipeline.options.runtime, finds_items=pipeline.vector is not None)


def _plan(
    network: Network,
    workflow: Workflow,
    name: str,
    labels: Sequence[str] | None,
    sparse_max: Mapping[str, int] | None,
    version: int | None,
    options: ServingOptions,
) -> Plan:
    try:
        expect_no_lists(workflow.output_schema, network.columns)
        features = select_features(workflow, network.signature, labels, sparse_max)
    except WorkflowError as error:
        raise ExportError(str(error)) from error
    number = 1 if version is None else version
    pipeline = Pipeline(
        name,
        number,
        features,
        network.signature,
        options,
        _possible(network),
        tolerance=tolerance_of(network),
    )
    if isinstance(network, NearestNetwork):
        pipeline = replace(pipeline, vector=network.vector, index=network.index)
    if not RUNTIMES[options.runtime].in_tensorflow:
        expect_no_hashed_bytes(workflow, features.program, pipeline.without_onnx)
    return make_plan(pipeline, _runtime_of(pipeline))


def _with_version(plan: Plan, version: int) -> Plan:
    pipeline = replace(plan.pipeline, version=version)
    return make_plan(pipeline, _runtime_of(pipeline))


def _sealed(stage: Path, repository: Path, plan: Plan, proof: Proof) -> Plan:
    """Add configs and manifests to staged models; returns the published form of the plan."""
    hashes = {name: file_hashes(folder) for name, folder in _folders(stage, plan).items()}
    contract = hashlib.sha256("".join(map(config_text, plan.contract)).encode()).hexdigest()
    generation = generation_of(hashes.values(), contract)
    names = step_names(repository, plan.steps, generation) | {
        plan.published.name: plan.published.name
    }
    published = plan.published_as(names, generation)
    for name, new in names.items():
        (stage / name).rename(stage / new)
    for spec in published.models:
        _write_warm_up(stage / spec.name / WARM_UP, spec)
        (stage / spec.name / CONFIG).write_text(
            config_text(spec, () if spec in published.steps else _loadable(repository, published)),
            encoding="utf-8",
        )
    version, name = plan.published.version, plan.published.name
    previous = published_version(repository, name)
    folder = stage / name / str(version)
    shutil.copyfile(stage / name / CONFIG, folder / CONFIG)
    write_golden(folder / GOLDEN, proof.golden)
    Manifest(
        generation,
        contract,
        previous if previous != version else None,
        {names[model]: files for model, files in hashes.items()},
        {spec.name: file_hash(stage / spec.name / CONFIG) for spec in published.models},
        {s.name: file_hashes(stage / s.name / WARM_UP) for s in published.models if s.warm_up},
        file_hash(folder / GOLDEN),
    ).write(stage, version)
    return published


def _loadable(repository: Path, plan: Plan) -> list[int]:
    """The kept versions of the published model that its new config describes."""
    spec, keep = plan.published, plan.pipeline.options.keep_versions
    older = [] if spec.steps else sorted(compatible_versions(repository, spec), reverse=True)
    return [spec.version, *older[: None if keep is None else keep - 1]]


def _proven(stage: Path, plan: Plan, network: Network, answers: OfflineAnswers) -> Proof:
    """Prove the content of the staging folder.

    Raises:
        ExportError: the files' answers differ from the network's answers in this process; names a
            runtime whose answers do not, if there is one.
    """
    try:
        return prove_written(plan, answers, _folders(stage, plan))
    except UnprovenError as error:
        able = _able(stage / OTHERS, plan, network, answers)
        advice = (
            f'Use runtime="{able}", which answers all of them.'
            if able
            else ("No other runtime answers all of them. Write the network in other operations.")
        )
        raise ExportError(f"{error} {advice}") from error


def _able(folder: Path, plan: Plan, network: Network, answers: OfflineAnswers) -> str | None:
    """The first other runtime whose files answer the golden rows correctly."""
    pipeline = plan.pipeline
    for runtime in pipeline.runtimes:
        if runtime == pipeline.options.runtime:
            continue
        try:
            # A fused model has no steps, and TensorFlow no onnxruntime, and so none of their options.
            options = replace(
                pipeline.options,
                runtime=runtime,
                preprocess_instances=1,
                pack=True,
                onnxruntime=None
                if RUNTIMES[runtime].in_tensorflow
                else pipeline.options.onnxruntime,
            )
            implementation = runtime_of(runtime, finds_items=pipeline.vector is not None)
            other = make_plan(replace(pipeline, options=options), implementation)
            folders = _folders(folder / runtime, other)
            _write_models(folders, implementation.prepare(network, other.pipeline))
            prove_written(other, answers, folders)
        except (ExportError, TrainingError):
            continue
        return runtime
    return None


def _folders(stage: Path, plan: Plan) -> dict[str, Path]:
    return {model.name: stage / model.name / str(model.version) for model in plan.models}


def _write_models(folders: Mapping[str, Path], writers: Mapping[str, Writer]) -> None:
    for folder in folders.values():
        folder.mkdir(parents=True)
    for name, write in writers.items():
        write(folders[name])


def _write_warm_up(folder: Path, spec: ModelSpec) -> None:
    for request in spec.warm_up:
        for tensor in request.values():
            path = folder / tensor.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tensor.content)
