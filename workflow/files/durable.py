"""Files that have reached the disk before anything names them, and locks that end with a process."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
# What file systems without such locks answer; NFS locks files, and no folder.
_NO_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents where they are missing, on the disk too."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)


def partial_of(path: Path) -> Path:
    """A new name beside a path, for what is to be renamed to it; a kill may leave a file there."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all that it holds are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


@contextmanager
def replacing(path: Path, suffix: str = "") -> Iterator[Path]:
    """A path to write a file to, which one rename puts into place when the block ends.

    Killed at any moment, the path holds the old or the new content; after an error the old one.

    Args:
        path: of the file to replace, or to make.
        suffix: of the name to write to, for a writer that goes by it.
    """
    partial = path.with_name(partial_of(path).name + suffix)
    try:
        yield partial
        sync(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file by one rename: killed at any moment, the path holds the old or the new content."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file or folder, until it is closed or the process ends, however it ends.

    Args:
        descriptor: of the file or folder.
        wait: for a lock that another process holds.

    Returns:
        whether it is locked; False where the file system has no locks.

    Raises:
        BlockingIOError: another process holds it, and `wait` is False.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def is_open_as(descriptor: int, path: Path) -> bool:
    """Whether a path still names the open file or folder, which may have been removed since."""
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())


@contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Make a folder if it is missing, and lock it: a second process waits for the first.

    A folder made here is removed when an error leaves it empty.

    Returns:
        whether it is locked; False where the file system locks no folders.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    descriptor = None
    try:
        descriptor, locked = _open_locked(folder)
        # The process that was waited for may have removed the empty folder that it had made.
        while not is_open_as(descriptor, folder):
            os.close(descriptor)
            descriptor, locked = _open_locked(folder)
        yield locked
    except BaseException:
        for path in made:
            remove_if_empty(path)
        raise
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_locked(folder: Path) -> tuple[int, bool]:
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    return descriptor, lock(descriptor, wait=True)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that is there and holds nothing."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
