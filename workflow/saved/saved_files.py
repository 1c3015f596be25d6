"""The two files of a saved workflow, replaced by one rename and protected by checksums.

The state file is named after its content, so that an old and a new one can coexist; `workflow.json`
names the current one, and is the only file that is replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workflow.errors import WorkflowError, WorkflowFormatError
from workflow.expressions.program.safetensors_file import (
    FormatError,
    expect_file,
    expect_json_size,
    read_arrays,
    write_arrays,
)
from workflow.files.durable import PARTIAL, exclusive, file_hash, partial_of, replace_file, sync
from workflow.files.sealed import sealed, unsealed
from workflow.schema.column import Array
from workflow.schema.names import listed

WORKFLOW_FILE = "workflow.json"
NVTABULAR_FILE = "workflow.pkl"
_STATE = re.compile(r"state-[0-9a-f]{16}\.safetensors")
_SUM = re.compile("[0-9a-f]{64}")


def write_files(folder: Path, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a workflow's files. A killed process leaves the old workflow or the new one.

    Remains of a killed save are removed. A folder made here is removed if the save fails.

    Args:
        folder: folder for the workflow alone; made if missing.
        document: the later result of `read_document`, except for the key `state`.
        arrays: the later result of `read_state`.

    Raises:
        WorkflowError: the folder is a file, or holds other files.
        OSError: an error of the file system.
        FormatError: the document or the header of the arrays is too large to be read again.
    """
    expect_own(folder)
    with exclusive(folder) as locked:
        # Without a lock, remains cannot be distinguished from files that another save is writing.
        keep = set() if locked else {p.name for p in folder.iterdir()} - _counted_on(folder)
        try:
            _write(folder, document, arrays)
        finally:
            _remove_others(folder, keep)


def _write(folder: Path, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    partial = partial_of(folder / "state")
    write_arrays(partial, arrays)
    sync(partial)
    total = file_hash(partial)
    text = sealed({**document, "state": total})
    expect_json_size(folder / WORKFLOW_FILE, len(text))
    partial.replace(folder / _state_file(total))
    # Before the document that refers to it.
    sync(folder)
    replace_file(folder / WORKFLOW_FILE, text)


def _state_file(total: str) -> str:
    return f"state-{total[:16]}.safetensors"


def _remove_others(folder: Path, keep: set[str]) -> None:
    """Remove older states, and incomplete files."""
    keep |= {WORKFLOW_FILE} | _counted_on(folder)
    for path in folder.iterdir():
        if _is_ours(path) and path.name not in keep:
            path.unlink(missing_ok=True)


def _counted_on(folder: Path) -> set[str]:
    """The state that the document names; every one if the document cannot be read."""
    if not _has_document(folder):
        return set()
    try:
        return {_state_name(read_document(folder))}
    except (FormatError, OSError):
        return {path.name for path in folder.iterdir() if _STATE.fullmatch(path.name)}


def _has_document(folder: Path) -> bool:
    return os.path.lexists(folder / WORKFLOW_FILE)


def _is_ours(path: Path) -> bool:
    written = path.name == WORKFLOW_FILE or _STATE.fullmatch(path.name)
    # Not is_file: another save may have renamed the file since the folder was listed.
    return bool(written or path.name.endswith(PARTIAL)) and not path.is_dir()


def expect_own(folder: Path) -> None:
    """Refuse to save a workflow into a folder with other files.

    Raises:
        WorkflowError: the folder is a file, or holds other files.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise WorkflowError(f"{folder} is a file. Save the workflow into its own folder.")
    names = [path.name for path in folder.iterdir() if not _is_ours(path)]
    if names:
        raise WorkflowError(
            f"{folder} holds other files: {listed(sorted(names), most=5)}. "
            "Save the workflow into its own folder."
        )


def expect_saved(folder: Path) -> None:
    """Check that a folder contains a saved workflow.

    Raises:
        WorkflowFormatError: it is missing, contains NVTabular's workflow, or has no
            `workflow.json`.
    """
    if not folder.is_dir():
        what = "is a file" if folder.is_file() else "does not exist"
        raise WorkflowFormatError(
            f"Expected the folder of a saved workflow. Received: {str(folder)!r:.200}, which {what}. "
            "workflow.save(folder) writes one, and `ensemble fit` in a shell, whose other commands take its name "
            "as --workflow."
        )
    if (folder / NVTABULAR_FILE).exists():
        raise WorkflowFormatError(
            f"{folder} holds a pickled workflow of NVTabular, which can run any code when it is read. "
            "Write it again with these operators, and fit it."
        )
    if not _has_document(folder):
        _refuse_without(folder, WORKFLOW_FILE)


def _refuse_without(folder: Path, name: str) -> None:
    raise WorkflowFormatError(
        f"{folder} is not a saved workflow: it has no {name}. Copy the whole folder that save wrote."
    )


def read_document(folder: Path) -> dict[str, Any]:
    """Read `workflow.json`, and verify its checksum.

    Raises:
        FormatError: it is too large, not JSON, or does not match its checksum.
    """
    path = folder / WORKFLOW_FILE
    expect_file(path)
    expect_json_size(path, path.stat().st_size)
    return unsealed(path.read_bytes(), str(path))


def read_state(folder: Path, document: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays that a document refers to, as views of the file's memory map.

    Raises:
        FormatError: the document has no checksum, or the file does not match it.
        WorkflowFormatError: the file is missing.
    """
    path = folder / _state_name(document)
    if not os.path.lexists(path):
        _refuse_without(folder, path.name)
    # The header first: it refuses an endless file before all of it is read.
    arrays = read_arrays(path)
    if (checksum := file_hash(path)) != document["state"]:
        raise FormatError(
            f"{path}: expected the state with the checksum {document['state'][:16]}.... "
            f"Received: {checksum[:16]}.... It is damaged: copy the folder again, or save it again."
        )
    return arrays


def _state_name(document: Mapping[str, Any]) -> str:
    total = document.get("state")
    if not isinstance(total, str) or not _SUM.fullmatch(total):
        raise FormatError(f"expected the checksum of the state. Received: {total!r:.100}.")
    return _state_file(total)
