"""Hashes of folders' contents, for the manifest and the name of a generation."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from workflow.files.durable import file_hash


def file_hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every file under a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): file_hash(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def generation_of(models: dict[str, dict[str, str]]) -> str:
    """A name for an export, derived from its content: other content has another name.

    Args:
        models: the `file_hashes` of each model's version folder, by the model's name.

    Example:
        >>> generation_of({"movies_nvt": {"model.py": "9f86d0"}})
        'e4be2c6fdb77af74'
    """
    text = json.dumps(models, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
