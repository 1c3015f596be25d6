"""Verification: a repository's files compared with the manifests of their exports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from exporter.errors import ExportError
from exporter.plan.model_spec import NO_BYTE_CODE
from exporter.repository.manifest import (
    Hashes,
    Manifest,
    read_manifest,
    versions_of,
)
from exporter.repository.publish import (
    config_after,
    expect_published,
    newest_version,
    published_version,
)
from serving.embedded.golden import GOLDEN
from workflow.files.durable import file_hash
from workflow.files.repository import CONFIG, WARM_UP
from workflow.wire.integrity import MANIFEST


def verify(repository: str | os.PathLike[str], name: str, version: int | None = None) -> str:
    """Check every file of an ensemble and its steps against the exports' manifests.

    If an export or a rollback changes the repository meanwhile, the check begins again.

    Args:
        repository: the model repository.
        name: the ensemble, or the fused model.
        version: the version that has to be complete; by default the published one. Existing files
            of other versions have to be unchanged too.

    Returns:
        The generation of the version.

    Raises:
        ExportError: a file is missing, changed, or not from an export; the text names it.

    Example:
        >>> verify("models", "movielens")  # doctest: +SKIP
        '5f1d0c8ab6c3e7a2'
    """
    root = Path(repository)
    while True:
        state = _state(root, name)
        try:
            return _verify(root, name, version)
        except (ExportError, OSError):
            if _state(root, name) == state:
                raise


def _state(root: Path, name: str) -> tuple[bytes, list[int]]:
    """The published config and the versions, which exports and rollbacks change."""
    config = root / name / CONFIG
    return config.read_bytes() if config.is_file() else b"", versions_of(root, name)


def _verify(root: Path, name: str, version: int | None) -> str:
    published = expect_published(root, name)
    version = published if version is None else version
    manifests = {v: read_manifest(root, name, v) for v in {*versions_of(root, name), version}}
    stored = root / name / str(published) / CONFIG
    config = stored.read_bytes() if stored.is_file() else b""
    expected = config_after(config, published, newest_version(root, name))
    if (root / name / CONFIG).read_bytes() != expected:
        raise ExportError(f"{root / name / CONFIG} is not what the export wrote.")
    verify_version(root, version, manifests[version])
    for number, manifest in manifests.items():
        if number == version:
            continue
        there = [model for model in manifest.models if (root / model / str(number)).exists()]
        for model in there:
            _verify_model(root, model, number, manifest)
    for model in {model for manifest in manifests.values() for model in manifest.models}:
        _expect_no_others(root / model, model, manifests)
    return manifests[version].generation


def unchanged(stage: Path, repository: Path, name: str, version: int) -> Manifest | None:
    """The manifest of the published version, if its files are those of a staged export."""
    try:
        published = published_version(repository, name)
        if published is None:
            return None
        manifest = read_manifest(repository, name, published)
        if manifest.content != read_manifest(stage, name, version).content:
            return None
        verify(repository, name, published)
    except ExportError:  # damaged: the export repairs it
        return None
    return manifest


def verify_version(root: Path, version: int, manifest: Manifest) -> None:
    """Check the files of one version, regardless of other files.

    Raises:
        ExportError: a file is missing, changed, or not from an export; the text names it.
    """
    for model in manifest.models:
        _verify_model(root, model, version, manifest)


def _verify_model(root: Path, model: str, version: int, manifest: Manifest) -> None:
    folder, files = root / model / str(version), manifest.models[model]
    is_step = model in manifest.steps
    metadata = {MANIFEST, NO_BYTE_CODE} if is_step else {MANIFEST, CONFIG, GOLDEN}
    _verify_folder(folder, files, metadata)
    if not is_step:
        _verify_file(folder / GOLDEN, manifest.golden)
    if (folder / NO_BYTE_CODE).is_file():
        _verify_file(folder / NO_BYTE_CODE, sha256().hexdigest())
    # A newer version replaces the config of a published model; each version has a copy.
    _verify_file((root / model if is_step else folder) / CONFIG, manifest.configs[model])
    expected = {"generation": manifest.generation, "files": files}
    if is_step and _read(folder / MANIFEST) != expected:
        raise ExportError(f"{folder / MANIFEST} is not what the export wrote.")
    for file, expected_hash in manifest.warm_up.get(model, {}).items():
        _verify_file(root / model / WARM_UP / file, expected_hash)


def _expect_no_others(folder: Path, model: str, manifests: dict[int, Manifest]) -> None:
    """Refuse files beside the versions that no export wrote."""
    described = [manifest for manifest in manifests.values() if model in manifest.models]
    expected = {CONFIG, *(str(v) for v, manifest in manifests.items() if manifest in described)}
    if requests := {file for manifest in described for file in manifest.warm_up.get(model, ())}:
        expected.add(WARM_UP)
        _expect_known(folder / WARM_UP, {p.name for p in _paths(folder / WARM_UP)}, requests)
    _expect_known(folder, {path.name for path in _paths(folder)}, expected)


def _verify_folder(folder: Path, files: Hashes, metadata: set[str]) -> None:
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    _expect_known(folder, present, {*files, *metadata})
    for name, expected in files.items():
        _verify_file(folder / name, expected)


def _paths(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _expect_known(folder: Path, present: Iterable[str], expected: set[str]) -> None:
    if not (extra := sorted({*present} - expected)):
        return
    cache = any(NO_BYTE_CODE in name for name in extra)
    advice = (
        " Python runs byte code that it finds: remove it. The models that are exported leave none."
    )
    raise ExportError(
        f"{folder} holds files that the export did not write: {', '.join(extra)}."
        f"{advice if cache else ''}"
    )


def _read(path: Path) -> object:
    if not path.is_file():
        raise ExportError(f"{path} is missing.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None


def _verify_file(path: Path, expected: str) -> None:
    if not path.is_file():
        raise ExportError(f"{path} is missing.")
    if file_hash(path) != expected:
        raise ExportError(f"{path} is not what the export wrote.")
