"""Folders of Delta Lake, Iceberg and Hudi, whose files hold rows that their tables no longer have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from workflow.errors import WorkflowError

from .objects import AnyPath

# In Iceberg's folder `metadata`, as its catalogs and those of Hadoop name it.
_OF_ICEBERG = re.compile(r"(v\d+|\d{5,}-[0-9a-f-]{36})(\.gz)?\.metadata\.json(\.gz)?")


def expect_no_tables(paths: Iterable[AnyPath]) -> None:
    """Refuse files that were found in the folder of a table with a log of its own.

    Args:
        paths: the files.

    Raises:
        WorkflowError: names the table's folder, and how to read its rows.
    """
    checked: set[AnyPath] = set()
    for path in paths:
        for folder in _above(path.absolute()):
            if folder in checked:
                break
            checked.add(folder)
            if table := _table(folder):
                raise WorkflowError(
                    f"Expected a folder of plain parquet. Received: {folder}, {table[0]}, whose files also "
                    f"hold rows that were deleted or replaced. Pass {table[1]}; for a command write its "
                    "rows as parquet first, in Polars with .sink_parquet(path)."
                )


def _above(path: AnyPath) -> Iterator[AnyPath]:
    while (parent := path.parent) != path:
        path = parent
        yield path


def _table(folder: AnyPath) -> tuple[str, str] | None:
    """The kind of a table and the way to read it, if a folder is one."""
    if (folder / "_delta_log").is_dir():
        return "a Delta table", f"polars.scan_delta({str(folder)!r})"
    if (folder / ".hoodie").is_dir():
        return "a Hudi table", "a frame of its rows, such as a query of Spark"
    metadata = folder / "metadata"
    with suppress(OSError):  # of a folder above the data that nobody may list
        if metadata.is_dir() and any(_OF_ICEBERG.fullmatch(p.name) for p in metadata.iterdir()):
            return "an Iceberg table", "polars.scan_iceberg(table), with pyiceberg's table"
    return None
