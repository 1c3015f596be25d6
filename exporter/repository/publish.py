"""Publication of a staged export: what is published never changes, and one rename decides.

A step with the config of the published step of its name becomes a version folder beside it. One
with another config becomes a model of its own, whose name ends with the generation. So no file that
a server may read is rewritten but one: the config of the model that clients ask. It is replaced
last, and names the steps by their versions.

What is moved lies in a staging folder before, with a journal of what is to be moved. After an
error, and after a kill by the next export, what was moved is removed again; killed at any moment,
the repository serves the old version or the new one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec
from exporter.repository.config_pbtxt import config_text, parse_config, read_config
from exporter.repository.manifest import CONFIG, WARM_UP
from exporter.repository.staging import JOURNAL, leftovers
from workflow.files.durable import remove_if_empty, sync, sync_tree

# What a config may say anew without an older version being another.
_NOT_OF_A_VERSION = (
    *("version_policy", "instance_group", "dynamic_batching", "response_cache", "model_warmup"),
)
# In a staging folder, beside the models, whose names begin with no dot.
BEFORE, AFTER, DRAFT = ".before.pbtxt", ".after.pbtxt", ".draft"


def expect_free(repository: Path, models: Sequence[str], version: int) -> None:
    """Check that the version is the newest, and that no name is taken by another kind of model.

    Args:
        repository: the model repository; may be missing.
        models: the steps, and the published model last.
        version: the version to come.

    Raises:
        ExportError: the published model has this version or a newer one, or a name belongs to
            another ensemble or its step.
    """
    published = models[-1]
    for model in models:
        path = repository / model / CONFIG
        if path.exists() and is_published(read_config(path)) != (model == published):
            raise ExportError(
                f"Expected {model} to be {'what clients ask' if model == published else 'a step'}, "
                f"as it will be. Received: {path}, which says otherwise. Export under another name."
            )
    if (folder := repository / published / str(version)).exists():
        raise ExportError(
            f"Version {version} exists already: {folder}. Export the next version, or remove "
            "this one."
        )
    newest = published_version(repository, published)
    if newest is not None and version < newest:
        raise ExportError(
            f"Expected a version above {newest}, which is published: a server answers with the "
            f"newest. Received: {version}."
        )


def is_published(config: Any) -> bool:
    """Whether a config is that of a model that clients ask: an ensemble, or a whole pipeline."""
    return config.platform == "ensemble" or "label_columns" in config.parameters


def published_version(repository: Path, name: str) -> int | None:
    """The version that clients are answered by; None where nothing is published.

    Raises:
        ExportError: the config is not that of a model that clients ask.
    """
    path = repository / name / CONFIG
    if not path.exists():
        return None
    config = read_config(path)
    versions = config.version_policy.specific.versions
    if not is_published(config) or not versions:
        raise ExportError(
            f"Expected {path} to name the version that clients are answered by. Received: a config "
            "that does not. Name an ensemble or a fused model of an export."
        )
    return int(max(versions))


def step_names(repository: Path, steps: Sequence[ModelSpec], generation: str) -> dict[str, str]:
    """Names under which steps are published: a published model of the same config, or a new one."""
    return {step.name: _step_name(repository, step, generation) for step in steps}


def _step_name(repository: Path, step: ModelSpec, generation: str) -> str:
    others = sorted(path.name for path in repository.glob(f"{step.name}_{'[0-9a-f]' * 16}"))
    for name in (step.name, *others):
        path = repository / name / CONFIG
        if path.exists() and path.read_text() == config_text(replace(step, name=name)):
            return name
    return f"{step.name}_{generation}" if (repository / step.name).exists() else step.name


def publish(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Move staged models into the repository, the published model's config last.

    Raises:
        OSError: the file system refused; the repository is as it was.
    """
    moves = _moves(stage, repository, models, version)
    _write_journal(stage, repository, models[-1], moves)
    for path in stage.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    sync_tree(stage)
    sync(stage.parent)
    try:
        for move in moves:
            (repository / move).parent.mkdir(exist_ok=True)
            (stage / move).replace(repository / move)
            sync((repository / move).parent)
        (stage / JOURNAL).unlink()
    except BaseException:
        _roll_back(stage, repository)
        raise


def _moves(stage: Path, repository: Path, models: Sequence[str], version: int) -> list[str]:
    """Paths to move, relative to the staging folder, in order; the last one publishes.

    The manifest is moved before the steps that it describes.
    """
    *steps, published = models
    moves = [s if not (repository / s).exists() else f"{s}/{version}" for s in steps]
    if not (repository / published).exists():
        return [*moves, published]
    requests = sorted((stage / published / WARM_UP).glob("*"))
    new = [file.relative_to(stage).as_posix() for file in requests]
    new = [file for file in new if not (repository / file).exists()]
    return [*new, f"{published}/{version}", *moves, f"{published}/{CONFIG}"]


def recover(repository: Path, name: str) -> None:
    """Clean up what killed exports of an ensemble left. No other export may be at work.

    An export that was killed before its config was in place is undone.
    """
    for stage in leftovers(repository, name):
        if (stage / JOURNAL).exists() and not _is_after(repository / name / CONFIG, stage):
            _roll_back(stage, repository)
        # First of all, since what is left of a stage without it could be taken for moved.
        (stage / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(stage)


def _write_journal(stage: Path, repository: Path, published: str, moves: Sequence[str]) -> None:
    """Write what going back needs beforehand, so that it needs no room: the disk may be full."""
    # What decides, after a kill, whether the new version counts.
    shutil.copyfile(stage / published / CONFIG, stage / AFTER)
    if (repository / published / CONFIG).exists():
        shutil.copyfile(repository / published / CONFIG, stage / BEFORE)
    # Under another name until it is whole: a torn journal would be none.
    draft = stage / DRAFT
    draft.write_text(json.dumps(list(moves)))
    draft.rename(stage / JOURNAL)


def _is_after(config: Path, stage: Path) -> bool:
    """Whether a published config is the one of the staged export."""
    return config.exists() and config.read_bytes() == (stage / AFTER).read_bytes()


def _roll_back(stage: Path, repository: Path) -> None:
    """Remove what was moved, in the opposite order; can be done twice."""
    for move in reversed(json.loads((stage / JOURNAL).read_text())):
        path = repository / move
        if path.name == CONFIG and (stage / BEFORE).exists():
            (stage / BEFORE).replace(path)
        elif path.name == CONFIG and path.exists() and not _is_after(path, stage):
            pass  # put back already
        elif path.exists() and not (stage / move).exists():
            remove(path, stage)
        if path.parent.name == WARM_UP:
            remove_if_empty(path.parent)
        if path.parent.exists():
            sync(path.parent)
    (stage / JOURNAL).unlink()


def remove(path: Path, stage: Path) -> None:
    """Remove a file or folder of a repository by one rename, so that no half of it is ever seen."""
    path.replace(stage / f".removed-{len(list(stage.glob('.removed-*')))}")


def compatible_versions(repository: Path, model: ModelSpec) -> list[int]:
    """The published versions of a model that a new config describes as well.

    A config counts for all versions of a model, so an older one stays loadable only when
    nothing but the versions, the generation and the way of waiting has changed.

    Raises:
        ExportError: the config that is there cannot be read.
    """
    folder = repository / model.name
    if not (folder / CONFIG).exists():
        return []
    old, new = read_config(folder / CONFIG), parse_config(config_text(model, [model.version]))
    versions = [v for v in old.version_policy.specific.versions if (folder / str(v)).is_dir()]
    for config in (old, new):
        for field in _NOT_OF_A_VERSION:
            config.ClearField(field)
        config.parameters.pop("generation", None)
    return versions if old == new else []
