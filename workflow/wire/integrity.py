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
    own = _read(folder / MANIFEST)
    # That of a step describes its files alone.
    files = own["files"] if "files" in own else own["models"][published]
    for name, expected in files.items():
        if _hash(folder / name) != expected:
            raise IntegrityError(f"{folder / name} is not what the export wrote. Export it again.")
    # A server that copies models from an object store does not put the published one beside it.
    whole = folder.parents[1] / published / folder.name / MANIFEST
    if whole.exists() and _read(whole)["generation"] != own["generation"]:
        raise IntegrityError(
            f"{folder} is of the generation {own['generation']}, and {whole} of another. "
            "Export both together."
        )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise IntegrityError(f"Expected the manifest {path}. Received: {error}.") from error


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise IntegrityError(f"Expected {path}, which was exported. Received: {error}.") from error
    return digest.hexdigest()
