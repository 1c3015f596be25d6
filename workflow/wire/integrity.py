"""Verification of a version folder when a server loads it.

Copied beside our backends and into exported preprocessing steps: the standard library only, Python
3.10.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


class IntegrityError(Exception):
    """A version folder differs from its export; the text names the file."""


def expect_exported(folder: Path, config: Mapping[str, Any]) -> None:
    """Compare a version folder with its manifest, and with the model that it belongs to.

    A model from another tool has neither the parameter `published` nor a manifest, and passes.

    Args:
        folder: the version folder.
        config: the model's config, as parsed from Triton's JSON.

    Raises:
        IntegrityError: a file is missing or changed, or the folder is of another generation.
    """
    published = config.get("parameters", {}).get("published", {}).get("string_value")
    if published is None:
        return
    files, generation = _described(folder / MANIFEST, published)
    for name, expected in files.items():
        if _hash(folder / name) != expected:
            raise IntegrityError(f"{folder / name} is not what the export wrote. Export it again.")
    # A server that copies models from an object store does not put the published one beside it.
    whole = folder.parents[1] / published / folder.name / MANIFEST
    if whole.exists() and (other := _described(whole, published)[1]) != generation:
        raise IntegrityError(
            f"{folder} is of the generation {generation}, and {whole} of another, {other}. "
            "Export both together."
        )


def _described(path: Path, published: str) -> tuple[dict[str, Any], str]:
    """The hashes of a manifest's files, by name, and its generation."""
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise IntegrityError(f"Expected the manifest {path}. Received: {error}.") from error
    try:
        # That of a step describes its files alone.
        files = manifest["files"] if "files" in manifest else manifest["models"][published]
        return dict(files.items()), str(manifest["generation"])
    except (KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path} is not what the export wrote. Export it again.") from error


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except (OSError, ValueError) as error:  # a name may be no path
        raise IntegrityError(f"Expected {path}, which was exported. Received: {error}.") from error
    return digest.hexdigest()
