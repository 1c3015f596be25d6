"""Tables that users have, as lazy Polars frames."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from .errors import WorkflowError
from .expressions.arrays import FormatError, read_json
from .expressions.types import ExpressionError
from .schema import Schema, SchemaError

SCHEMA_FILE = "schema.json"


def as_lazy_frame(data: Any) -> pl.LazyFrame:
    """A lazy frame of a path, a folder, a glob, a list of paths, a frame or a dict of columns.

    Raises:
        WorkflowError: no file matches, or the data is of another kind.

    Example:
        >>> as_lazy_frame({"userId": [1, 2]}).collect().shape
        (2, 1)
    """
    if isinstance(data, pl.LazyFrame):
        return data
    if isinstance(data, pl.DataFrame):
        return data.lazy()
    if isinstance(data, Mapping):
        with polars_errors("The columns make no table"):
            return pl.DataFrame(dict(data)).lazy()
    if (pandas := sys.modules.get("pandas")) and isinstance(data, pandas.DataFrame):
        with polars_errors("The pandas frame cannot be read"):
            return pl.DataFrame(pl.from_pandas(data)).lazy()
    if isinstance(data, str | Path) or (isinstance(data, list | tuple) and data):
        return pl.scan_parquet(parquet_files(data), glob=False)
    raise WorkflowError(
        f"Expected parquet paths, a Polars or pandas frame or a dict of columns. Received: {data!r:.200}."
    )


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
    if isinstance(paths, list | tuple):
        return [file for path in paths for file in parquet_files(path)]
    if not isinstance(paths, str | Path):
        raise WorkflowError(f"Expected the path of a parquet file. Received: {paths!r}.")
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
def polars_errors(what: str) -> Iterator[None]:
    """Turn what Polars raises at data that it cannot take into an error of ours.

    Raises:
        WorkflowError: `what`, and Polars' reason.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, TypeError, OverflowError, OSError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise WorkflowError(f"{what}: {error}") from error
