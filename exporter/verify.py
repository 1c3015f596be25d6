"""Checking that a published version is what its export wrote."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from exporter.config import parse_config
from exporter.errors import ExportError
from exporter.publish import CONFIG, MANIFEST


def verify(repository: str | os.PathLike[str], name: str, version: int | None = None) -> str:
    """Check the files of an ensemble and its steps against the export's manifest.

    Args:
        repository: the model repository.
        name: the ensemble.
        version: the version; by default the one that the ensemble's config pins.

    Returns:
        the generation.

    Raises:
        ExportError: a file is missing, is new or was changed; the text names it.

    Example:
        >>> verify("models", "movielens")  # doctest: +SKIP
        '5f1d0c8ab6c3e7a2'
    """
    root = Path(repository)
    version = version or _pinned_version(root, name)
    path = root / name / str(version) / MANIFEST
    if not path.is_file():
        raise ExportError(
            f"Expected the manifest {path}. Export the model, or name another version."
        )
    manifest = json.loads(path.read_text())
    for model, files in manifest["models"].items():
        _verify_model(root / model / str(version), files)
    return str(manifest["generation"])


def _pinned_version(root: Path, name: str) -> int:
    path = root / name / CONFIG
    if not path.is_file():
        raise ExportError(f"Expected the ensemble's config {path}.")
    return max(
        step.model_version for step in parse_config(path.read_text()).ensemble_scheduling.step
    )


def _verify_model(folder: Path, files: dict[str, str]) -> None:
    present = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    # Python may leave its caches where the server could write; they are not loaded from elsewhere.
    extra = sorted(
        n for n in present.keys() - files.keys() if n != MANIFEST and "__pycache__" not in n
    )
    if extra:
        raise ExportError(
            f"{folder} holds files that the export did not write: {', '.join(extra)}."
        )
    for name, expected in files.items():
        if name not in present:
            raise ExportError(f"{folder / name} is missing.")
        with present[name].open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise ExportError(f"{folder / name} is not what the export wrote.")
