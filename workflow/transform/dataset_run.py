"""A run that writes a data set: alone in its folder, and published by one rename or not at all."""

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
    Manifest,
    parquet_below,
    read_manifest,
)
from workflow.errors import WorkflowError
from workflow.files.durable import is_open_as, lock, make_folder, replace_file, sync
from workflow.schema.schema import Schema

_LOCK = "lock"


class Run(NamedTuple):
    """A run into a folder.

    Attributes:
        folder: where the data set is to be.
        scratch: a folder inside for files that are written; no reader looks into it, and it is
            gone at the end.
    """

    folder: Path
    scratch: Path

    def publish(self, written: Sequence[Path], schema: Schema) -> list[Path]:
        """Make files the data set of the folder. Killed at any moment, all of them are or none.

        The manifest is on the disk before a file leaves the scratch folder, so that the next run
        knows what a killed one left, and moves to its place last.

        Args:
            written: in the order of the rows, each in `scratch` under its final name.
            schema: of the files.
        """
        for path in written:
            sync(path)
        files = tuple(_described(path) for path in written)
        staged = self.folder / UNFINISHED / SCHEMA_FILE
        replace_file(staged, Manifest(schema, files).to_text())
        placed = [path.rename(self.folder / path.name) for path in written]
        sync(self.folder)
        staged.rename(self.folder / SCHEMA_FILE)
        sync(self.folder)
        return placed


def _described(path: Path) -> DataFile:
    return DataFile(path, pq.read_metadata(path).num_rows, path.stat().st_size)


@contextmanager
def run_into(folder: Path) -> Iterator[Run]:
    """Hold a folder for a run, cleared of what a killed run left; an error leaves it empty.

    Args:
        folder: made if missing; it must hold no parquet.

    Raises:
        WorkflowError: it is a file, holds parquet, or another run is writing to it.
    """
    if folder.exists() and not folder.is_dir():
        raise WorkflowError(f"{folder} is a file. Write to a folder.")
    marker = folder / UNFINISHED
    if not marker.exists():
        # First, so that somebody else's data is not marked as unfinished for a moment.
        _expect_empty(folder)
    make_folder(folder)
    descriptor = _hold(folder, marker)
    try:
        _remove_unpublished(folder, marker)
        _expect_empty(folder)
        # Of a data set whose parquet the user has removed.
        (folder / SCHEMA_FILE).unlink(missing_ok=True)
        sync(folder)
        yield Run(folder, _make_scratch(folder, marker))
    finally:
        try:
            _remove_unpublished(folder, marker)
            (marker / _LOCK).unlink()
            marker.rmdir()
        finally:
            os.close(descriptor)


def _expect_empty(folder: Path) -> None:
    if folder.exists() and any(parquet_below(folder)):
        raise WorkflowError(
            f"{folder} holds parquet files already. Remove them, or write to another folder."
        )


def _hold(folder: Path, marker: Path) -> int:
    """Lock a folder by a file in its marker; returns the file's descriptor."""
    while True:
        made = _make(marker)
        try:
            descriptor = os.open(marker / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # a run has just ended, and removed its marker
        try:
            alone = lock(descriptor, wait=False) or made
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
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _make_scratch(folder: Path, marker: Path) -> Path:
    # A name of its own: workers of a killed run may still write under theirs.
    scratch = marker / secrets.token_hex(4)
    scratch.mkdir()
    # Who may write to the folder may do so there: workers may run as other users.
    for path in (marker, scratch):
        path.chmod(stat.S_IMODE(folder.stat().st_mode))
    return scratch


def _remove_unpublished(folder: Path, marker: Path) -> None:
    """Remove what a run has written, unless it is published; it can be done twice."""
    staged = marker / SCHEMA_FILE
    if staged.exists():
        for file in read_manifest(staged, folder).files:
            file.path.unlink(missing_ok=True)
        sync(folder)
        staged.unlink()
    for path in [path for path in marker.iterdir() if path.name != _LOCK]:
        if path.is_dir():
            # Under another name nobody adds a file while it is removed.
            shutil.rmtree(path.rename(path.with_name(f"{path.name}.dead")))
        else:
            path.unlink()
