"""The first rows of a command's data, in the types of a model or a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from workflow.schema.schema import Schema


def first_rows(
    data: Any, columns: Schema, rows: int, storage_options: Mapping[str, str] | None = None
) -> pl.LazyFrame:
    """The first rows of the columns that the data has.

    Args:
        data: as `Source.of` takes it.
        columns: the columns; CSV and TSV are read in their types. One that the data lacks is left out,
            which the user of the rows reports.
        rows: the number of rows.
        storage_options: as `Workflow.fit` takes them.

    Raises:
        WorkflowError: the data cannot be read.
    """
    from workflow.data.sources import Source  # noqa: PLC0415 - so that help is shown at once

    source = Source.of(data, storage_options=storage_options, known=columns)
    have = frozenset(source.names)
    # Without any known column a later error names all of them.
    names = [name for name in columns.names if name in have] or None
    return source.select(names).sound().frame.head(rows)
