"""Publication of a new version in a model repository: completely, or not at all.

Prepared files are in a staging folder, with a journal of the previous state. If a step fails, the
journal is used to restore that state; if the process is killed, the next export does this. The
version folders come first, since they are not read until a config names them; the configs follow,
the ensemble's last, which publishes the new version.

Old and new steps can exist side by side, so the ensemble is complete at every moment. The only
exception: if the steps' inputs or outputs have changed, a server that starts between the writing of
their configs and of the ensemble's refuses the ensemble, because Triton has one config for all
versions of a model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporter.errors import ExportError
from exporter.repository.config_pbtxt import parse_config, read_config
from exporter.repository.staging import JOURNAL, leftovers
from workflow.files.durable import remove_if_empty, sync, sync_tree

CONFIG, MANIFEST = "config.pbtxt", "manifest.json"
# Triton's folder for the requests of a config's warm-up; each version has its own subfolder.
WARM_UP = "warmup"
# Fields of a config that may change without affecting an older version.
_NOT_OF_A_VERSION = (
    *("version_policy", "instance_group", "dynamic_batching", "response_cache", "model_warmup"),
)
# In a staging folder, beside the models, whose names do not begin with a dot.
BEFORE, AFTER, DRAFT = ".before", ".after.pbtxt", ".draft"


def expect_free(repository: Path, models: Sequence[str], version: int) -> None:
    """Check that no model has the version yet, and that no name belongs to another kind.

    Args:
        repository: the model repository; may be missing.
        models: the steps, and the ensemble last.
        version: the new version.

    Raises:
        ExportError: a model has it, or the name belongs to another ensemble or its step.
    """
    for folders in zip(
        *([repository / m / p for p in _parts(version)] for m in models), strict=True
    ):
        if found := [str(folder) for folder in folders if folder.exists()]:
            raise ExportError(
                f"Version {version} exists already: {', '.join(found)}. Export the next version, "
                "or remove this one."
            )
    for model in models:
        path = repository / model / CONFIG
        published = model == models[-1]
        if path.exists() and is_published(read_config(path)) != published:
            raise ExportError(
                f"Expected {model} to be {'what clients ask' if published else 'a step'}, as it will be. "
                f"Received: {path}, which says otherwise. Export under another name."
            )


def _parts(version: int) -> tuple[Path, Path]:
    """The folders of a version inside the folder of its model."""
    return Path(str(version)), Path(WARM_UP) / str(version)


def is_published(config: Any) -> bool:
    """Whether a config belongs to a model that clients use: an ensemble, or a whole pipeline."""
    return config.platform == "ensemble" or "label_columns" in config.parameters


def publish(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Move staged models into the repository; the ensemble is the last.

    Raises:
        OSError: an error of the file system; the repository is unchanged.
    """
    _write_journal(stage, repository, models, version)
    for path in stage.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    sync_tree(stage)
    sync(stage.parent)
    try:
        fresh = [model for model in models if not (repository / model).exists()]
        for model in models:
            if model not in fresh:
                for part in _parts(version):
                    if (stage / model / part).exists():
                        (repository / model / part.parent).mkdir(exist_ok=True)
                        _move(stage / model / part, repository / model / part)
        for model in models:
            if model in fresh:
                _move(stage / model, repository / model)
            else:
                _move(stage / model / CONFIG, repository / model / CONFIG)
        (stage / JOURNAL).unlink()
    except BaseException:
        _roll_back(stage, repository)
        raise


def recover(repository: Path, name: str) -> None:
    """Remove the remains of killed exports of an ensemble. No other export may be running.

    An export that was killed before its ensemble's config was in place is undone.
    """
    for stage in leftovers(repository, name):
        if (stage / JOURNAL).exists() and not _is_published(stage, repository, name):
            _roll_back(stage, repository)
        # First, since the remains of a stage without its journal could look published.
        (stage / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(stage)


def _write_journal(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Write the data for a rollback in advance, since the disk may be full later."""
    # Decides, after a kill, whether the new version is published.
    shutil.copyfile(stage / models[-1] / CONFIG, stage / AFTER)
    (stage / BEFORE).mkdir()
    configured = []
    for model in models:
        if (repository / model / CONFIG).exists():
            shutil.copyfile(repository / model / CONFIG, stage / BEFORE / model)
            configured.append(model)
    journal = {"version": version, "models": list(models), "configured": configured}
    # Under another name until it is complete: a truncated journal would be useless.
    draft = stage / DRAFT
    draft.write_text(json.dumps(journal))
    draft.rename(stage / JOURNAL)


def _is_published(stage: Path, repository: Path, name: str) -> bool:
    path = repository / name / CONFIG
    return path.exists() and path.read_bytes() == (stage / AFTER).read_bytes()


def _roll_back(stage: Path, repository: Path) -> None:
    """Restore everything in the journal, in reverse order; can be repeated."""
    journal = json.loads((stage / JOURNAL).read_text())
    version, models = journal["version"], journal["models"][::-1]
    for model in models:
        moved = not (stage / model / CONFIG).exists()
        if moved and model not in journal["configured"]:
            (repository / model / CONFIG).unlink(missing_ok=True)
        elif moved and (stage / BEFORE / model).exists():
            (stage / BEFORE / model).replace(repository / model / CONFIG)
    for model in models:
        folder = repository / model
        for part in _parts(version):
            if not (stage / model / part).exists() and (folder / part).exists():
                shutil.rmtree(folder / part)
        for empty in (folder / WARM_UP, folder):
            remove_if_empty(empty)
    sync(repository)
    (stage / JOURNAL).unlink()


def _move(source: Path, target: Path) -> None:
    source.replace(target)
    sync(target.parent)


def compatible_versions(repository: Path, text: str) -> list[int]:
    """The versions of a model in its repository that a new config describes as well.

    A config applies to all versions of a model, so an older one stays loadable only if nothing but
    the versions, the generation and the queue has changed.

    Raises:
        ExportError: the existing config cannot be read.
    """
    new = parse_config(text)
    folder = repository / new.name
    if not (folder / CONFIG).exists():
        return []
    old = read_config(folder / CONFIG)
    versions = [v for v in old.version_policy.specific.versions if (folder / str(v)).is_dir()]
    for config in (old, new):
        for field in _NOT_OF_A_VERSION:
            config.ClearField(field)
        config.parameters.pop("generation", None)
    return versions if old == new else []
