"""Staging folders of exports: beside the repository, one export at a time."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exporter.errors import ExportError
from workflow.files.durable import lock_when_free, release

# In a staging folder, the planned moves; its presence means unfinished work.
JOURNAL = ".journal.json"
# In a staging folder, a file that is locked while its export runs.
_RUNNING = ".running"


@contextmanager
def write_errors(repository: Path) -> Iterator[None]:
    """Turn errors of the file system into an `ExportError` that names the repository."""
    try:
        if os.path.lexists(repository) and not repository.is_dir():
            kind = "the file" if repository.exists() else "a link that leads nowhere,"
            raise ExportError(
                f"Expected a folder as the model repository. Received: {kind} {repository}."
            )
        yield
    except OSError as error:
        raise ExportError(
            f"Expected to be able to write to {repository}. Received: {error}. "
            "Nothing was published: fix this and try again."
        ) from error


@contextmanager
def staging(repository: Path, name: str) -> Iterator[Path]:
    """A folder in which to prepare an export; removed afterwards, also after an error.

    With a journal in it the folder stays, since its moves are unfinished: the next export undoes them,
    unless the new config is already in place.

    The folder is beside the repository, since a server that is started without a list of models treats
    every folder in the repository as a model, and stops at an invalid one. If files cannot be renamed
    from there (the repository is a mount, or its parent is not writable), the folder is inside.
    """
    folder = _beside(repository, name) or _make(repository.resolve(), repository, name)
    try:
        with _running(folder, os.O_RDWR | os.O_CREAT):
            yield folder
    finally:
        if not (folder / JOURNAL).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(stage: Path, flags: int = os.O_RDWR) -> Iterator[None]:
    """Lock a file in a staging folder; waits for the export that holds it.

    On NFS the lock of the repository does not exclude an export on another machine; that of a file does.
    """
    descriptor = os.open(stage / _RUNNING, flags, 0o600)
    try:
        lock_when_free(descriptor, stage)
        yield
    finally:
        release(descriptor)


def is_left(stage: Path) -> bool:
    """Wait until no export is preparing a staging folder; return whether the folder is still there."""
    with suppress(FileNotFoundError), _running(stage):
        pass
    return stage.exists()


def leftovers(repository: Path, name: str) -> list[Path]:
    """The staging folders that killed exports of an ensemble left behind."""
    root = repository.resolve()
    pattern = re.compile(re.escape(_prefix(repository, name)) + "[a-z0-9_]{8}")
    return [
        path
        for parent in (root.parent, root)
        if os.access(parent, os.R_OK)
        for path in sorted(parent.iterdir())
        if pattern.fullmatch(path.name) and path.is_dir() and _is_trusted(path)
    ]


def _is_trusted(folder: Path) -> bool:
    """Whether a folder is our own, or is where others cannot make one: in /tmp anyone can."""
    is_for_all = folder.parent.stat().st_mode & stat.S_ISVTX
    return not is_for_all or folder.lstat().st_uid == os.geteuid()


def _prefix(repository: Path, name: str) -> str:
    # No model's name contains an @, so no other ensemble's folder has this prefix.
    return f".{name}@{repository.resolve().name}.staging-"


def _make(parent: Path, repository: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=_prefix(repository, name), dir=parent))


def _beside(repository: Path, name: str) -> Path | None:
    """A folder beside the repository, or None if none can be made, or files cannot be renamed from there."""
    root = repository.resolve()
    try:
        folder = _make(root.parent, repository, name)
    except OSError:  # such as another disk, which is full, or read-only
        return None
    try:
        # For a file that does not exist: Linux compares the mounts before it looks for the file.
        (folder / "probe").rename(root / folder.name)
    except FileNotFoundError:
        return folder
    except OSError as error:
        folder.rmdir()
        if error.errno == errno.EXDEV:
            return None
        raise
    return folder
