"""A folder of an object store as the place of a data set: all of its files count, or none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import Any

from workflow.data.dataset import MARK, SCHEMA_FILE, UNFINISHED, if_killed, parquet_below
from workflow.data.object_stores import Objects, is_below, is_url
from workflow.data.objects import ObjectPath
from workflow.errors import WorkflowError

from .parquet_sink import inside_error


def write_to_store(
    url: str,
    storage_options: Mapping[str, Any] | None,
    client: Any,
    data: Any,
    write: Callable[[Path], Sequence[Path]],
) -> list[str]:
    """Write a data set into a temporary folder of this machine, and copy it to an object store.

    An object marks the folder as unfinished from the beginning to the end, `_schema.json` is copied
    last, and readers refuse a folder with the mark alone. So readers see all files or an error,
    though a store cannot rename.

    Args:
        url: path of the folder.
        storage_options: how to connect to the store.
        client: client of a cluster; must be None.
        data: the data that `write` reads.
        write: writes a data set into a folder that it makes, and returns its files.

    Returns:
        The URLs of the files, in the order of the rows.

    Raises:
        WorkflowError: the path is that of an object, the folder contains parquet or is inside of the
            data, another run writes to it, the store cannot be written, or there is a client.
    """
    if client is not None:
        raise WorkflowError(
            f"Expected a folder that all workers share, for client=. Received: {url}. Write to a shared "
            "folder, and copy it when it is complete: aws s3 sync FOLDER s3://BUCKET/FOLDER."
        )
    for path in data if isinstance(data, list | tuple) else [data]:
        if is_url(path) and not has_magic(path) and is_below(url, path):
            raise inside_error(path, url)
    place = Objects(storage_options).path(url)

    def taken() -> WorkflowError:
        return WorkflowError(
            f"Expected a folder that no other transform writes to. Received: {url}, where one has begun "
            f"and not ended. Wait for it. {if_killed(place)}."
        )

    # Checked first, since an unfinished folder looks like one with files of others.
    if (place / UNFINISHED).exists() and not (place / SCHEMA_FILE).exists():
        raise taken()
    if place.is_file():
        raise WorkflowError(
            f"Expected a folder. Received: {place}, which is an object. Write to a folder of another name."
        )
    _expect_no_parquet(place)
    reserved = place.bucket.reserved((place / MARK).key, taken)
    # A killed process leaves the folder, whose name says what it is.
    with reserved as put, tempfile.TemporaryDirectory(prefix="ensemble-transform-") as name:
        # Again: another run may have ended between the listing and the mark.
        _expect_no_parquet(Objects(storage_options).path(url))
        folder = Path(name) / "data"
        files = write(folder)
        for file in (*files, folder / SCHEMA_FILE):
            put((place / file.name).key, file)
        return [str(place / file.name) for file in files]


def _expect_no_parquet(folder: ObjectPath) -> None:
    if any(parquet_below(folder)):
        raise WorkflowError(
            f"{folder} holds parquet files already. Remove them, or write to another folder."
        )
