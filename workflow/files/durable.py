"""Files that reach the disk before anything refers to them, and locks tied to a process's life."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from workflow.progress.stage import showing

PARTIAL = ".partial"
# Errors of file systems that lack what is asked for.
_LACKING = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_NO_LOCKS = {errno.EBADF, errno.ENOLCK, *_LACKING}


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk.

    A file system that cannot do so for folders, as one that a virtual machine shares, is not waited for.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _LACKING or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of a new file or folder, where the file system has any.

    Others refuse it, such as a Windows drive in WSL, and give all files the same ones.
    """
    try:
        path.chmod(mode)
    except OSError as error:
        if error.errno not in {errno.EPERM, *_LACKING}:
            raise


def missing_folders(folder: Path) -> list[Path]:
    """The missing ones of a folder and its parents, the folder first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def make_folder(folder: Path) -> None:
    """Make a folder and its parents where they are missing, on the disk too."""
    missing = missing_folders(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)


def expect_room(folder: Path, size: int) -> None:
    """Check that a file of some bytes can be written in a folder, for a writer that does not survive an error.

    Raises:
        OSError: it cannot, such as on a full disk.
    """
    with TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Remove a folder and its parents if the block makes them and an error leaves them empty."""
    folders = missing_folders(folder)
    try:
        yield
    except BaseException:
        for path in folders:
            remove_if_empty(path)
        raise


def partial_of(path: Path) -> Path:
    """A new name beside a path, for a file to be renamed to it; a kill may leave the file there."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")


def partials_of(path: Path) -> list[Path]:
    """The names of `partial_of` that are there, beside a path."""
    name = re.compile(re.escape(f"{path.name}.") + "[0-9a-f]{8}" + re.escape(PARTIAL))
    return [other for other in path.parent.iterdir() if name.fullmatch(other.name)]


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all its content are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


# Of /dev/stdout, /dev/fd/3 and the like, which may lead to a file.
_STREAMS = {Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")}


def _is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open file, in whose place a rename would put a file."""
    is_other = path.exists() and not path.is_file() and not path.is_dir()
    return is_other or path.absolute().parent in _STREAMS


@contextmanager
def replacing(path: Path, suffix: str = "") -> Iterator[Path]:
    """A path to write a file to, which one rename puts into place when the block ends.

    If the process is killed, the path holds the old or the new content; after an error the old one.
    Devices and pipes, such as /dev/stdout, are written themselves, and so is the file that a link leads to.

    Args:
        path: path of the file to replace, or to make.
        suffix: suffix of the temporary name, for a writer that depends on it.
    """
    if _is_stream(path):
        yield path
        return
    path = path.resolve()
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
    """Write a file by one rename: if the process is killed, it has the old or the new content."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until `release`, or until the process ends in any way.

    On NFS the lock of a folder, and of a file that is open for reading alone, concerns one machine.

    Args:
        descriptor: descriptor of the file or folder.

    Returns:
        Whether it is locked; False if the file system has no locks.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    return _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_when_free(descriptor: int, path: Path) -> bool:
    """Lock as `lock` does, but wait for a process that holds the lock, which the progress line shows.

    Args:
        descriptor: as for `lock`.
        path: path of the file or folder, for the line.

    Returns:
        As `lock`.
    """
    try:
        return lock(descriptor)
    except BlockingIOError:
        with showing(f"waits for another process in {path}"):
            return _lock(descriptor, fcntl.LOCK_EX)


def _lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


def release(descriptor: int) -> None:
    """Close a file or folder that may be locked.

    A process that was forked meanwhile has the descriptor too, and would keep the lock as long as it lives.
    """
    with suppress(OSError):  # without locks
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_open_as(descriptor: int, path: Path) -> bool:
    """Whether a path still names the open file or folder, which may have been removed."""
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())


@contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Make a folder if it is missing, and lock it: a second process waits for the first.

    A folder made here is removed when an error leaves it empty.

    Returns:
        Whether it is locked; False if the file system cannot lock folders.
    """
    descriptor: int | None = None
    try:
        with removed_if_empty(folder):
            descriptor, locked = _open_locked(folder)
            # The other process may have removed an empty folder of its own while this one waited.
            while not is_open_as(descriptor, folder):
                closing, descriptor = descriptor, None
                release(closing)
                descriptor, locked = _open_locked(folder)
            yield locked
    finally:
        if descriptor is not None:
            release(descriptor)


def _open_locked(folder: Path) -> tuple[int, bool]:
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return descriptor, lock_when_free(descriptor, folder)
    except BaseException:
        os.close(descriptor)
        raise


def remove_if_empty(folder: Path) -> None:
    """Remove a folder if it exists and is empty."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
