"""Putting a new version into a model repository: all of it, or nothing.

What is prepared lies in a staging folder, with a journal: what was there before. When a step
fails, the journal is used to put everything back; when the process is killed, the next export
does it. The version folders come first, since nobody reads them until a config names them; then
the configs follow, the ensemble's last: with it the new version counts.

Old and new steps can stand side by side, so the ensemble is whole at every moment. Only where
the steps' inputs or outputs have changed, there is a moment between their configs and the
ensemble's in which a server that starts refuses the ensemble: Triton has one config for all
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
# Where Triton looks for the requests that a config says it makes by itself; each version has its own.
WARM_UP = "warmup"
# What a config may say anew without an older version being another.
_NOT_OF_A_VERSION = (
    *("version_policy", "instance_group", "dynamic_batching", "response_cache", "model_warmup"),
)
# In a staging folder, beside the models, whose names begin with no dot.
BEFORE, AFTER, DRAFT = ".before", ".after.pbtxt", ".draft"


def expect_free(repository: Path, models: Sequence[str], version: int) -> None:
    """Check that no model holds the version yet, and that no name is taken by another kind.

    Args:
        repository: the model repository; may be missing.
        models: the steps, and the ensemble last.
        version: the version to come.

    Raises:
        ExportError: a model holds it, or the name belongs to another ensemble or its step.
    """
    for folders in zip(
        *([repository / m / p for p in _parts(version)] for m in models), strict=True
    ):
        if found := [str(folder) for folder in folders if folder.exists()]:
            raise ExportError(
                f"Version {version} is there already: {', '.join(found)}. Export the next version, "
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
    """Whether a config is that of a model that clients ask: an ensemble, or a whole pipeline."""
    return config.platform == "ensemble" or "label_columns" in config.parameters


def publish(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Move staged models into the repository, the ensemble, which is the last of them, last.

    Raises:
        OSError: the file system refused; the repository is as it was.
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
    """Clean up what killed exports of an ensemble left. No other export may be at work.

    An export that was killed before its ensemble's config was in place is undone.
    """
    for stage in leftovers(repository, name):
        if (stage / JOURNAL).exists() and not _is_published(stage, repository, name):
            _roll_back(stage, repository)
        # First of all, since what is left of a stage without it could be taken for moved.
        (stage / JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(stage)


def _write_journal(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Write what going back needs beforehand, so that it needs no room: the disk may be full."""
    # What decides, after a kill, whether the new version counts.
    shutil.copyfile(stage / models[-1] / CONFIG, stage / AFTER)
    (stage / BEFORE).mkdir()
    configured = []
    for model in models:
        if (repository / model / CONFIG).exists():
            shutil.copyfile(repository / model / CONFIG, stage / BEFORE / model)
            configured.append(model)
    journal = {"version": version, "models": list(models), "configured": configured}
    # Under another name until it is whole: a torn journal would be none.
    draft = stage / DRAFT
    draft.write_text(json.dumps(journal))
    draft.rename(stage / JOURNAL)


def _is_published(stage: Path, repository: Path, name: str) -> bool:
    path = repository / name / CONFIG
    return path.exists() and path.read_bytes() == (stage / AFTER).read_bytes()


def _roll_back(stage: Path, repository: Path) -> None:
    """Put everything back as the journal says, in the opposite order; can be done twice."""
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
    """The versions of a model that its repository holds and that a new config describes as well.

    A config counts for all versions of a model, so an older one stays loadable only when
    nothing but the versions, the generation and the way of waiting has changed.

    Raises:
        ExportError: the config that is there cannot be read.
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
