"""Putting a new version into a model repository: all of it, or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.config import parse_config
from exporter.errors import ExportError

CONFIG, MANIFEST = "config.pbtxt", "manifest.json"


def expect_free(repository: Path, models: Sequence[str], version: int) -> None:
    """Check that no model holds the version yet.

    Raises:
        ExportError: one does, or the repository is not a folder.
    """
    if repository.exists() and not repository.is_dir():
        raise ExportError(
            f"Expected a folder as the model repository. Received: the file {repository}."
        )
    held = [
        str(repository / model / str(version))
        for model in models
        if (repository / model / str(version)).exists()
    ]
    if held:
        raise ExportError(
            f"Version {version} is there already: {', '.join(held)}. Export the next version, or remove this one."
        )


@contextmanager
def staging(repository: Path, name: str) -> Iterator[Path]:
    """A folder inside the repository to prepare an export in; it is gone afterwards.

    Raises:
        ExportError: the repository cannot be written.
    """
    made = [p for p in (repository, *repository.parents) if not p.exists()]
    try:
        repository.mkdir(parents=True, exist_ok=True)
        # Inside, since only a rename within one file system is atomic.
        folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=repository))
    except OSError as error:
        raise ExportError(
            f"Expected to be able to write to {repository}. Received: {error}."
        ) from error
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in made:
            _remove_if_empty(parent)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def file_hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every file under a folder, by relative path."""
    hashes = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            hashes[path.relative_to(folder).as_posix()] = hashlib.file_digest(
                file, "sha256"
            ).hexdigest()
    return hashes


def generation_of(folder: Path) -> str:
    """A name for what is staged, made of its content: another content has another name."""
    text = json.dumps(file_hashes(folder), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def publish(stage: Path, repository: Path, models: Sequence[str], version: int) -> None:
    """Move staged models into the repository, the ensemble, which is the last of them, last.

    Until the ensemble's config is replaced, a server that reads the repository sees the old
    ensemble. When a step fails the repository is put back as it was.

    Raises:
        ExportError: the file system refused.
    """
    _sync_tree(stage)
    undo: list[Callable[[], Any]] = []
    try:
        for model in models:
            _publish_model(stage / model, repository / model, version, undo)
        _sync(repository)
    except OSError as error:
        for action in reversed(undo):
            action()
        raise ExportError(
            f"Expected to be able to write to {repository}. Received: {error}."
        ) from error


def _publish_model(source: Path, target: Path, version: int, undo: list[Callable[[], Any]]) -> None:
    if not target.exists():
        source.rename(target)
        undo.append(lambda: shutil.rmtree(target))
        return
    (source / str(version)).rename(target / str(version))
    undo.append(lambda: shutil.rmtree(target / str(version)))
    old = (target / CONFIG).read_bytes() if (target / CONFIG).exists() else None
    os.replace(source / CONFIG, target / CONFIG)  # noqa: PTH105 - the atomic call by its name
    if old is not None:
        undo.append(lambda: (target / CONFIG).write_bytes(old))
    _sync(target)


def compatible_versions(repository: Path, text: str) -> list[int]:
    """The versions of a model that its repository holds and that a new config describes as well.

    A config counts for all versions of a model, so an older one stays loadable only when
    nothing but parameters and versions has changed.
    """
    new = parse_config(text)
    path = repository / new.name / CONFIG
    if not path.exists():
        return []
    old = parse_config(path.read_text())
    versions = list(old.version_policy.specific.versions)
    for config in (old, new):
        for field in ("version_policy", "parameters", "instance_group", "ensemble_scheduling"):
            config.ClearField(field)
    return versions if old == new else []


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
