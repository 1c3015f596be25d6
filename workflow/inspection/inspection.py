"""Facts about all columns of a data set, which can be saved, loaded and shown."""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from workflow.data.sources import as_path
from workflow.errors import WorkflowError, WorkflowFormatError
from workflow.expressions.program.safetensors_file import FormatError, expect_file, parse_json
from workflow.files.durable import replace_file
from workflow.files.write_errors import write_errors
from workflow.operator.settings import fits
from workflow.picture.page import as_page
from workflow.schema.dtypes import DTYPES
from workflow.schema.names import listed
from workflow.schema.own_names import OwnNames

from .column import PERCENTILES, ColumnInspection
from .html import to_html
from .text import to_text
from .time_formats import FORMATS

FORMAT = 2
# Of a file: some 40,000 columns.
MOST_BYTES = 100_000_000


@dataclass(frozen=True)
class Inspection(metaclass=OwnNames):
    """Facts about the columns of a data set, by `inspect_dataset`.

    It prints as text of 80 columns, shows as a table in a notebook, and can be saved as JSON. With
    `generate_dataset` it is the description of synthetic data.

    Attributes:
        rows: the number of rows.
        columns: facts about each column.
        unreadable: columns that no workflow can read, or that have the type null, by name, each with the reason.

    Example:
        >>> from workflow import inspect_dataset
        >>> inspection = inspect_dataset({"userId": [7, 9, 7, None]})
        >>> inspection["userId"].distinct, inspection["userId"].nulls
        (2, 1)
    """

    rows: int
    columns: tuple[ColumnInspection, ...]
    unreadable: Mapping[str, str]

    def __getitem__(self, name: str) -> ColumnInspection:
        """The facts about one column.

        Raises:
            KeyError: there is no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        names = listed(column.name for column in self.columns)
        raise KeyError(f"Expected a column among {names}. Received: {name!r}.")

    def __str__(self) -> str:
        """Two lines for each column: its facts, and an operator that may suit it."""
        return to_text(self.rows, self.columns, self.unreadable)

    def _repr_html_(self) -> str:
        """The same as a table, for a notebook."""
        return self.to_html()

    def to_html(self) -> str:
        """A table for a notebook or a page, without scripts and other files."""
        return to_html(self.rows, self.columns, self.unreadable)

    def to_page(self) -> str:
        """The same as a complete HTML document, in UTF-8."""
        return as_page("Inspection", self.to_html())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the facts to a JSON file, replaced by one rename.

        The most frequent values are in it; `inspect_dataset(..., top=0)` keeps none.

        Raises:
            WorkflowError: not a local path, the facts are too large to be loaded again, or the file
                cannot be written.
        """
        columns = [asdict(column) for column in self.columns]
        document = {"format": FORMAT, "rows": self.rows, "columns": columns}
        whole = {**document, "unreadable": dict(self.unreadable)}
        text = json.dumps(whole, indent=1, allow_nan=False).encode()
        if len(text) > MOST_BYTES:
            raise WorkflowError(_too_large(len(text)))
        with write_errors(path):
            replace_file(as_path(path), text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Inspection:
        """Read the facts from a file of `save`; it may have been edited.

        Raises:
            WorkflowFormatError: the file is missing, or has content that `save` does not write.

        Example:
            >>> from workflow import inspect_dataset
            >>> inspect_dataset({"userId": [7, 9]}).save("users.json")
            >>> Inspection.load("users.json").rows
            2
        """
        try:
            return _parsed(_read(as_path(path)))
        except (FormatError, OSError) as error:
            raise WorkflowFormatError(
                f"Expected an inspection, as Inspection.save writes it, in {path}. Received: {error}"
            ) from error


def _too_large(size: int) -> str:
    return (
        f"Expected at most {MOST_BYTES:,} bytes of facts. Received: {size:,}. Inspect fewer columns, or "
        "keep fewer of their texts: inspect_dataset(..., top=0)."
    )


def _read(path: Path) -> Any:
    expect_file(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise FormatError(_too_large(size))
    return parse_json(path.read_bytes(), str(path))


def _parsed(document: Any) -> Inspection:
    keys = {"format": int, "rows": int, "columns": list, "unreadable": dict}
    if not isinstance(document, dict) or document.keys() != keys.keys():
        raise FormatError(f"no object of {', '.join(keys)}.")
    for key, kind in keys.items():
        if type(document[key]) is not kind:
            raise FormatError(f"{key} of another type.")
    if document["format"] != FORMAT:
        file_format = document["format"]
        raise FormatError(
            f"format {file_format}; this version reads format {FORMAT}. Inspect the data again."
        )
    if document["rows"] < 0:
        raise FormatError(f"rows {document['rows']}.")
    if not fits(document["unreadable"], Mapping[str, str]):
        raise FormatError("unreadable is no mapping from names to texts.")
    columns = tuple(map(_column, document["columns"]))
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise FormatError("a column occurs twice.")
    return Inspection(document["rows"], columns, document["unreadable"])


@cache
def _hints() -> dict[str, Any]:
    return typing.get_type_hints(ColumnInspection)


def _column(document: Any) -> ColumnInspection:
    names = [field.name for field in fields(ColumnInspection)]
    if not isinstance(document, dict) or document.keys() != set(names):
        raise FormatError(f"a column without exactly {', '.join(names)}.")
    for name, value in document.items():
        if not fits(value, _hints()[name]):
            raise FormatError(f"{name}={value!r:.100} in column {document['name']!r:.100}.")
    column = ColumnInspection(**document)
    if (fault := _fault(column)) is not None:
        raise FormatError(f"{fault} in column {column.name!r:.100}.")
    return column


def _fault(column: ColumnInspection) -> str | None:
    """A contradiction among the facts of a column, if there is one."""
    counts = ("nulls", "null_elements", "nans", "infinities", "count", "distinct", "once")
    percentiles = (column.lengths, column.quantiles, column.spread)
    wrong = {f"{name} below 0": getattr(column, name) < 0 for name in counts} | {
        f"dtype {column.dtype!r:.100}": column.dtype not in DTYPES,
        "ranks without shares": len(column.ranks) != len(column.shares),
        "ranks or shares that do not ascend to all values": not (
            _ascending(column.ranks, 1, column.distinct)
            and _ascending(column.shares, 0, 1)
            and bool(column.ranks) == bool(column.distinct)
        ),
        f"quantiles, spread or lengths that are not {PERCENTILES} percentiles": bool(
            {*map(len, percentiles)} - {0, PERCENTILES}
        ),
        "no quantiles": not column.quantiles and column.distinct > 0 and column.dtype != "bool",
        "percentiles that do not ascend": not all(_ascending(p, None, None) for p in percentiles),
        "lengths of lists": column.is_list != bool(column.lengths) and column.count > 0,
        f"common values that are not pairs of {column.dtype} and a count": not all(
            _is_pair(pair, column.dtype) for pair in column.common
        ),
        f"formats {column.formats!r:.100}": not {*column.formats} <= {*FORMATS},
    }
    return next((fault for fault, is_so in wrong.items() if is_so), None)


def _is_pair(pair: Sequence[Any], dtype: str) -> bool:
    kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "string": (str,), "float": (float, int)}
    allowed = kinds.get(DTYPES[dtype].kind, (int,)) if dtype in DTYPES else ()
    return len(pair) == 2 and type(pair[0]) in allowed and type(pair[1]) is int and pair[1] > 0


def _ascending(numbers: Sequence[float], least: float | None, last: float | None) -> bool:
    """Whether numbers do not fall, start at `least` or later, and end at `last`."""
    if not numbers:
        return True
    if any(one > other for one, other in pairwise(numbers)):
        return False
    ends = last is None or abs(numbers[-1] - last) <= 1e-9
    return ends and (least is None or numbers[0] >= least)
