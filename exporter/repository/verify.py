"""Check that a published version is unchanged since its export."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from exporter.errors import ExportError
from exporter.repository.config_pbtxt import read_config
from exporter.repository.content import generation_of
from exporter.repository.publish import CONFIG, MANIFEST, WARM_UP, is_published
from workflow.files.durable import file_hash


def verify(repository: str | os.PathLike[str], name: str, version: int | None = None) -> str:
    """Check the files of an ensemble and its steps against the export's manifest.

    Args:
        repository: the model repository.
        name: the ensemble.
        version: the version; by default the one that the ensemble's config pins. The configs belong
            to that version, and are checked only with it.

    Returns:
        The generation.

    Raises:
        ExportError: a file is missing, extra or changed; the text names it.

    Example:
        >>> verify("models", "movielens")  # doctest: +SKIP
        '5f1d0c8ab6c3e7a2'
    """
    root = Path(repository)
    pinned = _pinned_version(root / name / CONFIG)
    version = pinned if version is None else version
    manifest = _read_manifest(root / name / str(version) / MANIFEST)
    for model, files in manifest["models"].items():
        _verify_folder(root / model / str(version), files)
    for model, files in manifest["warm_up"].items():
        _verify_folder(root / model / WARM_UP / str(version), files)
    if version == pinned:
        for model, expected in manifest["configs"].items():
            _verify_file(root / model / CONFIG, expected)
    return str(manifest["generation"])


def _pinned_version(path: Path) -> int:
    if not path.is_file():
        raise ExportError(f"Expected the ensemble's config {path}. Received: no such file.")
    config = read_config(path)
    if is_published(config) and config.platform != "ensemble":
        return int(max(config.version_policy.specific.versions))
    versions = {step.model_version for step in config.ensemble_scheduling.step}
    if len(versions) != 1:
        raise ExportError(
            f"Expected {path} to pin one version of all steps. Received: {sorted(versions) or 'none'}."
        )
    return int(versions.pop())


def _read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest, and verify it: the generation is derived from its hashes."""
    if not path.is_file():
        raise ExportError(
            f"Expected the manifest {path}. Export the model, or name another version."
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        whole = (
            manifest.keys() == {"generation", "models", "configs", "warm_up"}
            and manifest["configs"].keys() == manifest["models"].keys()
            and manifest["warm_up"].keys() <= manifest["models"].keys()
            and manifest["generation"] == generation_of(manifest["models"])
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise ExportError(f"Expected a manifest in {path}. Received: {error}.") from error
    if not whole:
        raise ExportError(f"{path} is not what the export wrote.")
    return dict(manifest)


def _verify_folder(folder: Path, files: dict[str, str]) -> None:
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    # Python may leave its caches where the server could write; they are not loaded from elsewhere.
    extra = sorted(n for n in present - files.keys() if n != MANIFEST and "__pycache__" not in n)
    if extra:
        raise ExportError(
            f"{folder} holds files that the export did not write: {', '.join(extra)}."
        )
    for name, expected in files.items():
        _verify_file(folder / name, expected)


def _verify_file(path: Path, expected: str) -> None:
    if not path.is_file():
        raise ExportError(f"{path} is missing.")
    if file_hash(path) != expected:
        raise ExportError(f"{path} is not what the export wrote.")
