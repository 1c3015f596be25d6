"""A run that writes a data set: it locks its folder, and publishes by one rename or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from workflow.data.dataset import (
    SCHEMA_FILE,
    UNFINISHED,
    DataFile,
    PublishedData,
    parquet_below,
    read_manifest,
)
from workflow.errors import WorkflowError
from workflow.files.durable import (
    is_open_as,
    lock,
    make_folder,
    removed_if_empty,
    replace_file,
    set_mode,
    sync,
)
from workflow.files.write_errors import write_errors
from workflow.schema.schema import Schema

_LOCK = "lock"


class DatasetRun(NamedTuple):
    """A run that writes into a folder.

    Attributes:
        folder: the folder of the data set.
        scratch: a folder inside it for files that are being written; readers ignore it, and it is
            removed at the end.
    """

    folder: Path
    scratch: Path

    def publish(self, written: Sequence[Path], schema: Schema) -> list[Path]:
        """Publish files as the data set of the folder: all or none, even if the process is killed.

        The manifest is on the disk before a file leaves the scratch folder, so that the next run
        can recognise the remains of a killed one; it is renamed to its final place last.

        Args:
            written: files in the order of the rows, each in `scratch` under its final name.
            schema: schema of the files.

        Raises:
            WorkflowError: a file cannot be written.
        """
        with write_errors(f"parquet to {self.folder}"):
            for path in written:
                sync(path)
            files = tuple(_described(path) for path in written)
            staged = self.folder / UNFINISHED / SCHEMA_FILE
            replace_file(staged, PublishedData(schema, files).to_text())
            placed = [path.rename(self.folder / path.name) for path in written]
            sync(self.folder)
            staged.rename(self.folder / SCHEMA_FILE)
            sync(self.folder)
        return placed


def _described(path: Path) -> DataFile:
    return DataFile(path, pq.read_metadata(path).num_rows, path.stat().st_size)


@contextmanager
def run_into(folder: Path) -> Iterator[DatasetRun]:
    """Lock a folder for a run, and remove the remains of a killed run.

    An error leaves the folder empty, or removes it if it was made here.

    Args:
        folder: made if missing; it must not contain parquet.

    Raises:
        WorkflowError: it is a file, contains parquet, cannot be written, or another run is writing
            to it.
    """
    # First, so that other data is never marked as unfinished, not even for a moment.
    expect_free(folder)
    marker = folder / UNFINISHED
    with removed_if_empty(folder), _held(folder, marker):
        with write_errors(f"parquet to {folder}"):
            _remove_unpublished(folder, marker)
            _expect_empty(folder)
            # From a data set whose parquet the user has removed.
            (folder / SCHEMA_FILE).unlink(missing_ok=True)
            sync(folder)
            run = DatasetRun(folder, _make_scratch(folder, marker))
        yield run


@contextmanager
def _held(folder: Path, marker: Path) -> Iterator[None]:
    """Lock a folder, and at the end remove its marker and all that is not published."""
    with write_errors(f"parquet to {folder}"):
        make_folder(folder)
        descriptor = _hold(folder, marker)
    try:
        yield
    finally:
        try:
            _remove_unpublished(folder, marker)
            (marker / _LOCK).unlink()
            marker.rmdir()
        finally:
            os.close(descriptor)


def expect_free(folder: Path) -> None:
    """Refuse a folder that a run could not write into; the remains of a killed run may be there.

    Raises:
        WorkflowError: it is a file, or contains parquet.
    """
    if folder.exists() and not folder.is_dir():
        raise WorkflowError(f"{folder} is a file. Write to a folder.")
    if not (folder / UNFINISHED).exists():
        _expect_empty(folder)


def _expect_empty(folder: Path) -> None:
    if folder.exists() and any(parquet_below(folder)):
        raise WorkflowError(
            f"{folder} holds parquet files already. Remove them, or write to another folder."
        )


def _hold(folder: Path, marker: Path) -> int:
    """Lock a folder by a file in its marker; returns the file's descriptor."""
    while True:
        is_new = _make(marker)
        try:
            descriptor = os.open(marker / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # a run has just ended, and removed its marker
        try:
            alone = lock(descriptor) or is_new
        except BlockingIOError:
            alone = False
        if alone and is_open_as(descriptor, marker / _LOCK):
            return descriptor
        os.close(descriptor)
        if not alone:
            raise WorkflowError(
                f"Expected a folder that no other transform writes to. Received: {folder}, where one "
                "has begun and not ended. Wait for it, or write to another folder. On a file system "
                f"without locks it may have been killed: then remove {marker}."
            )


def _make(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True)  # the parent of another run that ended in an error may be gone
    except FileExistsError:
        return False
    return True


def _make_scratch(folder: Path, marker: Path) -> Path:
    # A unique name: workers of a killed run may still write under theirs.
    # Absolute, since Polars takes a ~ at the beginning for the user's home.
    scratch = marker.absolute() / secrets.token_hex(4)
    scratch.mkdir()
    # With the folder's permissions, since workers may run as other users.
    for path in (marker, scratch):
        set_mode(path, stat.S_IMODE(folder.stat().st_mode))
    return scratch


def _remove_unpublished(folder: Path, marker: Path) -> None:
    """Remove the files of a run, unless it is published; can be repeated."""
    staged = marker / SCHEMA_FILE
    if staged.exists():
        for file in read_manifest(staged, folder).files:
            (folder / file.path.name).unlink(missing_ok=True)
        sync(folder)
        staged.unlink()
    for path in [path for path in marker.iterdir() if path.name != _LOCK]:
        if path.is_dir():
            # Renamed first, so that no worker adds a file while it is removed.
            shutil.rmtree(path.rename(path.with_name(f"{path.name}.dead")))
        else:
            path.unlink()
