"""One parquet file: its footer, read once, and the ways in which it can be unreadable."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow.parquet as pq

from .errors import WorkflowError
from .frames import UNREADABLE, extension_errors

_MAGIC = b"PAR1"
# Most footers are shorter, and are then read at once.
_TAIL = 65536


class ParquetFile(NamedTuple):
    """A parquet file as its footer described it when it was listed.

    Attributes:
        path: of the file.
        schema: its columns.
        unread: columns of it that are not read, by name, each with an error's text.
        groups: the rows of each row group.
        size: its bytes.
        changed: when it was last written, in nanoseconds.
    """

    path: Path
    schema: dict[str, pl.DataType]
    unread: dict[str, str]
    groups: tuple[int, ...]
    size: int
    changed: int

    @classmethod
    def read(cls, path: Path) -> ParquetFile:
        """Read a footer.

        Raises:
            WorkflowError: the file cannot be read as parquet; names it.
        """
        try:
            state = path.stat()
            footer = io.BytesIO(_footer(path))
            unread = extension_errors(pq.read_schema(footer))
            metadata = pq.read_metadata(footer)
            with warnings.catch_warnings():  # of the types that are in `unread`
                warnings.simplefilter("ignore", UserWarning)
                schema = dict(pl.read_parquet_schema(footer))
            groups = tuple(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))
        except (*UNREADABLE, OSError) as error:
            raise WorkflowError(f"{path} cannot be read as parquet: {_reason(path)}") from error
        return cls(path, schema, unread, groups, state.st_size, state.st_mtime_ns)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(self.groups)

    def expect_unchanged(self) -> None:
        """Raise where the file is gone or was written since it was listed.

        Raises:
            WorkflowError: names the file.
        """
        try:
            state = self.path.stat()
        except OSError as error:
            received = f"{error.strerror or error}"
        else:
            if (state.st_size, state.st_mtime_ns) == (self.size, self.changed):
                return
            received = "another file of this name, written since"
        raise WorkflowError(
            f"Expected {self.path} as it was when the data was listed. Received: {received}. "
            "Write new data to another folder while this one is read."
        )


def _footer(path: Path) -> bytes:
    """The end of a file as a parquet file of its own, without pages, so that it is read once."""
    with path.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - _TAIL))
        tail = opened.read()
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > len(tail):
            opened.seek(max(0, size - length))
            tail = opened.read()
    return _MAGIC + tail[-length:]


def _reason(file: Path) -> str:
    """What is wrong with a file whose schema cannot be read."""
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_MAGIC))
            size = opened.seek(0, 2)
            opened.seek(max(0, size - len(_MAGIC)))
            end = opened.read()
    except OSError as error:
        return f"{error.strerror or error}."
    if not size:
        return "it is empty."
    if start != _MAGIC:
        return (
            "it is no parquet file. Give another format as a frame, such as polars.scan_csv(path), or "
            'convert it in a shell: python -c "import polars; '
            f"polars.scan_csv('{file}').sink_parquet('{file.with_suffix('.parquet')}')\""
        )
    if end != _MAGIC:
        return f"it ends after {size:,} bytes in the middle, as a copy that was cut short does."
    return "its footer is damaged."
