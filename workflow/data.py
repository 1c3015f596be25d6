"""Tables that users have, as lazy Polars frames."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from .dtypes import SchemaError
from .errors import WorkflowError
from .expressions.arrays import FormatError, read_json
from .expressions.types import ExpressionError
from .parquet import ParquetTable, damage
from .schema import Schema
from .selection import listed

# Of a name that pandas and pyarrow pass over when they read the folder.
SCHEMA_FILE = "_schema.json"


class Table(NamedTuple):
    """Data of any kind as one table.

    Attributes:
        frame: the columns.
        conflicts: why files have no column in common, by its name: a text for an error.
    """

    frame: pl.LazyFrame
    conflicts: Mapping[str, str]


def as_table(data: Any) -> Table:
    """A table of a path, a folder, a glob, a list of paths, a frame or a dict of columns.

    Raises:
        WorkflowError: no file matches, one is no parquet, or the data is of another kind.

    Example:
        >>> as_table({"userId": [1, 2]}).frame.collect().shape
        (2, 1)
    """
    if is_files(data):
        files = ParquetTable(parquet_files(data))
        return Table(files.scan(), files.conflicts)
    return Table(_in_memory(data), {})


def as_lazy_frame(data: Any) -> pl.LazyFrame:
    """A lazy frame of what `as_table` takes, with all of its columns.

    Raises:
        WorkflowError: also where the files do not agree in their columns.

    Example:
        >>> as_lazy_frame({"userId": [1, 2]}).collect().shape
        (2, 1)
    """
    table = as_table(data)
    for conflict in table.conflicts.values():
        raise WorkflowError(conflict)
    return table.frame


def is_files(data: Any) -> bool:
    """Whether data is given as paths."""
    return isinstance(data, str | Path) or (isinstance(data, list | tuple) and bool(data))


def _in_memory(data: Any) -> pl.LazyFrame:
    if isinstance(data, pl.LazyFrame):
        return data
    if isinstance(data, pl.DataFrame):
        return data.lazy()
    if isinstance(data, Mapping):
        return _of_columns(data).lazy()
    if isinstance(data, pa.Table):
        with polars_errors("The Arrow table cannot be read"):
            return pl.DataFrame(pl.from_arrow(data)).lazy()
    if (pandas := sys.modules.get("pandas")) and isinstance(data, pandas.DataFrame):
        return _of_pandas(data).lazy()
    raise WorkflowError(
        "Expected parquet paths, a Polars or pandas frame, an Arrow table or a dict of columns. "
        f"Received: {data!r:.200}."
    )


def _of_columns(columns: Mapping[str, Any]) -> pl.DataFrame:
    for name, values in columns.items():
        if isinstance(values, Iterator):
            raise WorkflowError(
                f"Expected column {name!r} as a list, an array or a series. Received: {values!r:.100}, "
                "which can be read only once."
            )
    with polars_errors("The columns make no table"):
        return pl.DataFrame(dict(columns))


def _of_pandas(frame: Any) -> pl.DataFrame:
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].unique()
        raise WorkflowError(
            f"Expected distinct names of columns. Received: {listed(map(repr, twice))} twice."
        )
    with polars_errors("The pandas frame cannot be read"):
        return pl.DataFrame(pl.from_pandas(frame))


def as_path(path: Any) -> Path:
    """A path that a file system can have.

    Raises:
        WorkflowError: it is none.

    Example:
        >>> as_path("models").name
        'models'
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise WorkflowError(f"Expected the path of a folder. Received: {path!r:.200}.")
    return Path(path)


def schema_beside(data: Any) -> Schema | None:
    """The schema that `transform_to_parquet` wrote into a folder of parquet, if there is one.

    Raises:
        WorkflowError: the file is there and is no such schema.
    """
    if not isinstance(data, str | Path) or not (path := Path(data) / SCHEMA_FILE).is_file():
        return None
    try:
        document = read_json(path)
        return Schema.from_json(document["columns"])
    except (FormatError, SchemaError, KeyError, TypeError) as error:
        raise WorkflowError(f"{path} is no schema of a data set: {error}") from error


def parquet_files(paths: str | Path | list[Any] | tuple[Any, ...]) -> list[Path]:
    """The files that a path, a folder, a glob or a list of these names, in order.

    Raises:
        WorkflowError: one of them matches no file.
    """
    if isinstance(paths, list | tuple) and paths:
        return [file for path in paths for file in parquet_files(path)]
    if not isinstance(paths, str | Path):
        raise WorkflowError(f"Expected the path of a parquet file. Received: {paths!r:.200}.")
    path = Path(paths)
    if path.is_dir():
        found = sorted(path.glob("*.parquet"))
    elif path.is_file():
        found = [path]
    else:
        found = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - absolute patterns too
    if not found:
        raise WorkflowError(f"No parquet file matches {str(paths)!r}.")
    return found


@contextmanager
def polars_errors(what: str, data: Any = None) -> Iterator[None]:
    """Turn what Polars raises at data that it cannot take into an error of ours.

    Args:
        what: what cannot be done.
        data: where it comes from; of files, it is found out which one is damaged.

    Raises:
        WorkflowError: `what`, and Polars' reason without its hints, which are for its own users.
    """
    try:
        yield
    except (
        pl.exceptions.PolarsError,
        pa.ArrowException,
        TypeError,
        OverflowError,
        OSError,
    ) as error:
        if isinstance(error, ExpressionError):
            raise
        # What a file is damaged by, Polars says in words of its format, and not of which file.
        found = damage(parquet_files(data)) if is_files(data) else None
        reason = found or next(iter(str(error).splitlines()), type(error).__name__)
        raise WorkflowError(f"{what}: {reason}") from error
