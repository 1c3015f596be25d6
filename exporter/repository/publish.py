"""Publication of a staged export: published files never change, and one rename publishes.

A step whose config equals that of the published step with its name becomes a version folder beside
it. A step with another config becomes a separate model, whose name ends with the generation. So the
only file that is rewritten while a server may read it is the config of the model that clients use.
It is replaced last, and names the versions of the steps.

Files are first in a staging folder, with a journal of the planned moves. After an error the moved files
are removed at once, after a kill by the next export. Whenever the process is killed, the repository
serves either the old version or the new one.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.errors import ExportError
from exporter.plan.config_pbtxt import config_text, parse_config, read_config
from exporter.plan.model_spec import ModelSpec
from exporter.repository.manifest import config_of
from exporter.repository.staging import JOURNAL, is_left, leftovers, write_errors
from workflow.files.durable import (
    exclusive,
    missing_folders,
    remove_if_empty,
    replace_file,
    set_mode,
    sync,
    sync_tree,
)
from workflow.files.repository import CONFIG, WARM_UP

# Fields of a config that may change without affecting an older version.
_NOT_OF_A_VERSION = (
    *("version_policy", "instance_group", "dynamic_batching", "response_cache", "model_warmup"),
)
# A parameter of a config that a rollback publishes, and its values: the highest number used before.
_NEWEST = "newest_version"
_NUMBER = re.compile("[1-9][0-9]{0,17}")
# In a staging folder, beside the models, whose names do not begin with a dot.
BEFORE, AFTER = ".before.pbtxt", ".after.pbtxt"


def expect_free(repository: Path, models: Sequence[str], version: int) -> None:
    """Check that the version is new, and that no name belongs to another kind of model.

    Args:
        repository: the model repository; may be missing.
        models: the steps, and the published model last.
        version: the new version.

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
        raise ExportError(f"Version {version} exists already: {folder}. Export the next version.")
    newest = newest_version(repository, published)
    # The published version itself may be exported again, if its files were removed by hand.
    if version < newest or version == newest != published_version(repository, published):
        raise ExportError(
            f"Expected a version above {newest}, the newest that was published: clients know a version by "
            f"its number, so that none is used again. Received: {version}."
        )


def is_published(config: Any) -> bool:
    """Whether a config belongs to a model that clients use: an ensemble, or a whole pipeline."""
    return config.platform == "ensemble" or "label_columns" in config.parameters


def published_version(repository: Path, name: str) -> int | None:
    """The version that clients use; None if nothing is published.

    Raises:
        ExportError: the config does not belong to a model that clients use.
    """
    path = repository / name / CONFIG
    return _version_in(path) if path.exists() else None


def expect_published(repository: Path, name: str) -> int:
    """The version that clients use.

    Raises:
        ExportError: the repository has no such model, or clients do not use it.
    """
    return _version_in(config_of(repository, name))


def _version_in(path: Path) -> int:
    config = read_config(path)
    versions = config.version_policy.specific.versions
    if not is_published(config) or not versions:
        raise ExportError(
            f"Expected {path} to name the version that clients are answered by. Received: a config "
            "that does not. Name an ensemble or a fused model of an export."
        )
    return int(max(versions))


def next_version(repository: Path, name: str) -> int:
    """The version after the newest one; 1 if nothing is published."""
    try:
        return newest_version(repository, name) + 1
    except ExportError:  # another kind of model, which `expect_free` refuses
        return 1


def newest_version(repository: Path, name: str) -> int:
    """The newest version that was published, even if a rollback has removed it; 0 if none was.

    Raises:
        ExportError: the config does not belong to a model that clients use, or is damaged.
    """
    published = published_version(repository, name)
    if published is None:
        return 0
    path = repository / name / CONFIG
    remembered = read_config(path).parameters[_NEWEST].string_value
    if not remembered:
        return published
    if not _NUMBER.fullmatch(remembered) or int(remembered) <= published:
        raise ExportError(f"{path} is not what a rollback wrote.")
    return int(remembered)


def config_after(config: bytes, version: int, newest: int) -> bytes:
    """The config that publishes a version after newer ones, whose numbers it keeps from being used again.

    Args:
        config: the config of the version, as its export wrote it.
        version: the version.
        newest: the newest version that was published.
    """
    if newest == version:
        return config
    remembered = f'parameters {{ key: "{_NEWEST}" value {{ string_value: "{newest}" }} }}\n'
    return config + remembered.encode()


def step_names(repository: Path, steps: Sequence[ModelSpec], generation: str) -> dict[str, str]:
    """Names for the published steps: a published model with the same config, or a new one.

    Raises:
        ExportError: such a model has the version already, without a model that clients use.
    """
    names = {step.name: _step_name(repository, step, generation) for step in steps}
    folders = [repository / names[step.name] / str(step.version) for step in steps]
    if orphans := [str(folder) for folder in folders if folder.exists()]:
        raise ExportError(
            "Expected no steps of the version that is exported. Received: those of an ensemble that was "
            f"removed without them. Remove {' and '.join(orphans)}, or export a later version."
        )
    return names


def _step_name(repository: Path, step: ModelSpec, generation: str) -> str:
    variants = sorted(path.name for path in repository.glob(f"{step.name}_{'[0-9a-f]' * 16}"))
    for name in (step.name, *variants):
        path = repository / name / CONFIG
        if path.exists() and path.read_text(encoding="utf-8") == config_text(
            replace(step, name=name)
        ):
            return name
    return f"{step.name}_{generation}" if (repository / step.name).is_dir() else step.name


def publish(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Move staged models into the repository, the published model's config last.

    Raises:
        OSError: an error of the file system; the repository is unchanged.
    """
    move(stage, repository, models[-1], _moves(stage, repository, models, version))


def move(stage: Path, repository: Path, published: str, moves: Sequence[str]) -> None:
    """Move files and folders from a staging folder into the repository.

    Args:
        stage: the staging folder.
        repository: the model repository.
        published: the model that clients use.
        moves: relative paths in order; the last one is the published model's config.

    Raises:
        OSError: an error of the file system; the repository is unchanged.
    """
    # Decides, after a kill, whether the new version is published.
    shutil.copyfile(stage / published / CONFIG, stage / AFTER)
    if (repository / published / CONFIG).exists():
        shutil.copyfile(repository / published / CONFIG, stage / BEFORE)
    for path in stage.rglob("*"):
        set_mode(path, 0o755 if path.is_dir() else 0o644)
    sync_tree(stage)
    # In advance, since the disk may be full later; last, since it tells that all else is on the disk.
    replace_file(stage / JOURNAL, json.dumps(list(moves)).encode())
    sync(stage.parent)
    try:
        for moved in moves:
            if not (repository / moved).parent.exists():
                (repository / moved).parent.mkdir()
                set_mode((repository / moved).parent, 0o755)
            (stage / moved).replace(repository / moved)
            sync((repository / moved).parent)
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


@contextmanager
def changing(repository: Path, name: str) -> Iterator[bool]:
    """Lock a repository for a change of an ensemble, and remove the remains of killed exports.

    On a file system without locks these stay, since they could belong to a running export. Folders
    that are made may be read by all users, as their content.

    Returns:
        Whether the repository is locked, and so without remains.

    Raises:
        ExportError: the repository cannot be written.
    """
    with write_errors(repository):
        folders = missing_folders(repository)
        with exclusive(repository) as alone:
            for path in folders:
                # The server may be another user's, whom this one's umask shuts out.
                set_mode(path, path.stat().st_mode | 0o055)
            if alone:
                recover(repository, name)
            yield alone


def recover(repository: Path, name: str) -> None:
    """Remove the remains of killed exports of an ensemble. No other export may be running.

    An export that was killed before its config was in place is undone.
    """
    for stage in filter(is_left, leftovers(repository, name)):
        if (stage / JOURNAL).exists() and not _is_after(repository / name / CONFIG, stage):
            _roll_back(stage, repository)
        # First, since the remains of a stage without its journal could look published.
        (stage / JOURNAL).unlink(missing_ok=True)
        try:
            shutil.rmtree(stage)
        except OSError as error:  # such as NFS, where a server has a removed file open
            if stage.exists():
                warnings.warn(
                    f"{stage}, which an earlier change left, could not be removed: {error}. Remove it.",
                    stacklevel=6,
                )


def _is_after(config: Path, stage: Path) -> bool:
    """Whether a published config is that of the staged export."""
    return config.exists() and config.read_bytes() == (stage / AFTER).read_bytes()


def _roll_back(stage: Path, repository: Path) -> None:
    """Remove the moved files, in reverse order; can be repeated."""
    for moved in reversed(json.loads((stage / JOURNAL).read_text())):
        path = repository / moved
        if (stage / moved).exists():
            pass  # not moved
        elif path.name == CONFIG and (stage / BEFORE).exists():
            (stage / BEFORE).replace(path)
        elif path.exists() and (path.name != CONFIG or _is_after(path, stage)):
            remove(path, stage)
        if path.parent.name == WARM_UP:
            remove_if_empty(path.parent)
        if path.parent.exists():
            sync(path.parent)
    (stage / JOURNAL).unlink()


def remove(path: Path, stage: Path) -> None:
    """Remove a file or folder of a repository by one rename, so that readers never see a part."""
    try:
        path.replace(stage / f".removed-{len(list(stage.glob('.removed-*')))}")
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # In a container, a folder of its image: that can be removed, and not renamed.
        shutil.rmtree(path)


def compatible_versions(repository: Path, model: ModelSpec) -> list[int]:
    """The published versions of a model that a new config describes as well.

    A config applies to all versions of a model, so an older one stays loadable only if nothing but
    the versions, the generation and the queue has changed.

    Raises:
        ExportError: the existing config cannot be read.
    """
    folder = repository / model.name
    if not (folder / CONFIG).exists():
        return []
    old, new = read_config(folder / CONFIG), parse_config(config_text(model, [model.version]))
    versions = [v for v in old.version_policy.specific.versions if (folder / str(v)).is_dir()]
    for config in (old, new):
        for field in _NOT_OF_A_VERSION:
            config.ClearField(field)
        for parameter in ("generation", _NEWEST):
            config.parameters.pop(parameter, None)
    return versions if old == new else []
