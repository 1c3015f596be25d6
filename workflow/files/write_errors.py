"""The error for a file or folder that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl
import pyarrow as pa

from workflow.errors import WorkflowError, cannot_write, first_line


@contextmanager
def write_errors(what: object) -> Iterator[None]:
    """Turn errors of writing into one that names the place, unlike errors of reading the source.

    Args:
        what: the place, or what is written where, for the message.

    Raises:
        WorkflowError: something cannot be written, such as on a full disk.

    Example:
        >>> with write_errors("facts.json"):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
            ...
        workflow.errors.WorkflowError: Expected to be able to write facts.json. Received: [Errno 28] No \
space left on device. Check the free space and the permissions of the disk.
    """
    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pa.ArrowException) as error:
        # Polars says that the parquet is invalid, and then why.
        text = first_line(error).rpartition("IO error: ")[2]
        of_system = isinstance(error, OSError) and error.errno is not None
        raise WorkflowError(cannot_write(what, error if of_system else text)) from error
