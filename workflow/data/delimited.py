"""CSV and TSV files that form one table, with types that hold all of their values."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import polars as pl

from workflow.errors import WorkflowError, first_line
from workflow.schema.names import listed
from workflow.schema.schema import DATE, NAIVE, ColumnSchema, Schema

from .dataset import expect_once, local_matches
from .frames import ZIP, zip_advice
from .object_stores import is_url
from .objects import state_of

# The separator of fields by the end of a file's name.
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_GZIP = ".gz"
_HIDDEN = (".", "_")
# The type of a column whose types in several files are these.
_WIDER: Mapping[frozenset[pl.DataType], pl.DataType] = {
    frozenset((pl.Int64(), pl.Float64())): pl.Float64(),
    frozenset((pl.Int64(), pl.UInt64())): pl.UInt64(),
}
_DAY = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_HOUR = r"[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?"
# A pattern of each type in ISO 8601, by a suffix that no two columns of a header share.
_TIMES = {
    "\n1": (f"{_DAY}$", pl.Date()),
    "\n2": (f"{_DAY}{_HOUR}$", pl.Datetime("us")),
    "\n3": (rf"{_DAY}{_HOUR}(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)$", pl.Datetime("us", "UTC")),
}
_DAYS, _MOMENTS, _ZONED = _TIMES
# Words that other programs write for null, in lower case.
_NULL_WORDS = ("na", "n/a", "null", "none", "nil", "nan", "\\n", "-", "?", ".")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# Patterns of columns in which a word for null is not a value, by a suffix, with their names.
_SPOILT = {
    "\nnumbers": (_NUMBER, "numbers"),
    _DAYS: (_TIMES[_DAYS][0], "dates"),
    _MOMENTS: (_TIMES[_MOMENTS][0], "times"),
    _ZONED: (_TIMES[_ZONED][0], "times"),
}
_ADVICE = (
    "Lines end with LF or CRLF. Quotes within a field are doubled, and the field is quoted. Give "
    "files of another form as a frame: polars.scan_csv(path, separator=';', null_values='NA', "
    "infer_schema_length=None)."
)


@dataclass(frozen=True)
class TextFiles:
    """Data of CSV and TSV with words for null, which `Source.of` takes as it takes paths.

    Attributes:
        paths: the files.
        null_values: fields that are null in every column, beside empty ones.
    """

    paths: Sequence[Path]
    null_values: Sequence[str]


class TextFile(NamedTuple):
    """A file with a header.

    Attributes:
        path: path of the file.
        names: its columns, from the header.
        size: size in bytes when it was listed.
        changed: time of its last modification then.
        types: types that hold the values of its columns.
        words: columns of "numbers", "dates" or "times" but for one or more words for null.
        days: columns of dates or times with a day that no calendar has, each with such a text.
    """

    path: Path
    names: tuple[str, ...]
    size: int
    changed: int | str | None
    types: Mapping[str, pl.DataType]
    words: Mapping[str, str]
    days: Mapping[str, str]


class DelimitedTable:
    r"""Files that form one table: the columns that all of them have, whatever their order.

    Types are those that hold all values: integers, floats, booleans, dates and times in ISO 8601,
    else strings. A column of numbers and of words such as "NA" is a conflict, since these may be null,
    or a code, and so is one of dates among which is a day that no calendar has. A column of integers in
    one file and of floats in another is of floats; otherwise types that differ are a conflict. An empty
    field is null. Opening reads each file three times, and once more if it has dates or times: a line
    with too few or too many fields is an error, and types are inferred from all rows.

    Args:
        paths: the files.
        known: columns whose types are known: those of strings are read as such, whatever they look
            like, so that "007" keeps its zeros. In other columns, which may identify rows, integers
            with leading zeros then stay text too.
        null_values: fields that are null in every column, beside empty ones.

    Attributes:
        conflicts: the columns that cannot be read, by name, each with an error's text.

    Raises:
        WorkflowError: a file cannot be read, is empty, has no proper header or a line with another
            number of fields; names file and line.

    Example:
        >>> _ = Path("users.csv").write_text("user,city\n7,Ulm\n9,\n")
        >>> DelimitedTable([Path("users.csv")]).scan().collect().rows()
        [(7, 'Ulm'), (9, None)]
    """

    def __init__(
        self,
        paths: Sequence[Path],
        known: Schema | None = None,
        null_values: Sequence[str] = (),
    ) -> None:
        self._known = known
        self._nulls = [*null_values]
        self.files = [self._open(path) for path in paths]
        self.conflicts: dict[str, str] = {}
        self._schema: dict[str, pl.DataType] = {}
        for name in dict.fromkeys(name for file in self.files for name in file.names):
            dtype = self._common(name)
            if isinstance(dtype, str):
                self.conflicts[name] = dtype
            else:
                self._schema[name] = dtype

    def _open(self, path: Path) -> TextFile:
        schema = self._known
        file = _opened(path, self._overrides, self._nulls)
        if schema is None:
            return file
        further = [n for n, dtype in file.types.items() if n not in schema and dtype == pl.Int64()]
        coded = _with_leading_zeros(path, file.types, further, self._nulls)
        return file._replace(types={**file.types} | dict.fromkeys(coded, pl.String()))

    def scan(self) -> pl.LazyFrame:
        """The rows of all files, lazily, in order."""
        return pl.concat([self._scan(file) for file in self.files])

    def _scan(self, file: TextFile) -> pl.LazyFrame:
        types = {name: self._schema.get(name, dtype) for name, dtype in file.types.items()}
        empty = [
            pl.lit(None).alias(name) for name, dtype in self._schema.items() if _is_null(dtype)
        ]
        return _scan(file.path, types, self._nulls).select([*self._schema]).with_columns(empty)

    def _overrides(self, names: Sequence[str]) -> dict[str, pl.DataType]:
        """Types that are not inferred."""
        types = {"string": pl.String(), "uint64": pl.UInt64()}
        columns = [] if self._known is None else [c for c in self._known.columns if c.name in names]
        return {c.name: types[c.dtype] for c in columns if c.dtype in types}

    def _common(self, name: str) -> pl.DataType | str:
        """The type of a column in all files, or an error's text."""
        for file in self.files:
            if name not in file.types:
                other = next(file for file in self.files if name in file.types)
                return (
                    f"The files do not form one table. {file.path} has no column {name!r} in its "
                    f"header, which {other.path} has."
                )
        column = self._known[name] if self._known is not None and name in self._known else None
        if column is not None and column.is_list:
            return (
                f"Expected {column} in column {name!r}, lists, which CSV and TSV cannot hold. "
                f"Received: {self.files[0].path}. Write the data as parquet."
            )
        worded = [file for file in self.files if name in file.words]
        if worded and column is None:
            return _null_word(worded[0], name, self._nulls)
        if dated := [file for file in self.files if name in file.days]:
            return _no_day(dated[0], name)
        return self._common_of_values(name, column)

    def _common_of_values(self, name: str, column: ColumnSchema | None) -> pl.DataType | str:
        """The type of a column that all files have."""
        kinds = [file for file in self.files if not _is_null(file.types[name])]
        types = {file.types[name] for file in kinds}
        if column is not None and column.info.kind != "string" and pl.String() in types:
            file = next(file for file in kinds if file.types[name] == pl.String())
            return _no_value(file, column, self._nulls)
        if self._known is not None and column is None and pl.String() in types:
            return pl.String()
        if len(types) > 1 and frozenset(types) not in _WIDER:
            first = kinds[0]
            other = next(file for file in kinds if file.types[name] != first.types[name])
            return (
                f"The files do not form one table. Column {name!r} is {first.types[name]} in "
                f"{first.path} and {other.types[name]} in {other.path}. Write it as one type."
            )
        # Without a value the type is that of text, or null where another one is known.
        empty = pl.String() if column is None else pl.Null()
        return _WIDER.get(frozenset(types)) or next(iter(types), empty)

    def expect_unchanged(self) -> None:
        """Raise if a file was removed or written since it was listed.

        Raises:
            WorkflowError: names the file.
        """
        for file in self.files:
            with _reading(file.path):
                now = state_of(file.path)
            if now != (file.size, file.changed):
                raise WorkflowError(
                    f"Expected {file.path} as it was when the data was listed. Received: another "
                    "file of this name, written since."
                )

    def damage(self) -> str | None:
        """The place of damage that opening did not find: none."""


def text_paths(paths: Sequence[Any]) -> list[Path] | None:
    """The CSV and TSV files that paths and patterns name; None if they name no such file.

    Files end with .csv or .tsv, or with .gz after it. A folder is of text if files in it are, and
    none is parquet. Names that begin with "." or "_" are ignored in a pattern and a folder.

    Raises:
        WorkflowError: files of other kinds are named as well, no file matches, links name one
            twice, or a path is of an object store.

    Example:
        >>> text_paths(["ratings.parquet"]) is None
        True
    """
    text = [path for path in paths if _is_text(path)]
    if not text:
        return None
    if len(text) < len(paths):
        other = next(path for path in paths if not _is_text(path))
        raise WorkflowError(
            f"Expected files of one kind. Received: {text[0]} and {other}. Pass CSV and TSV without "
            "other files."
        )
    return [file for path in text for file in _matches(str(path))]


def _is_text(path: Any) -> bool:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        return False
    if _ending(str(path)) in _SEPARATORS:
        return True
    # A name without the ending: "raw/*.csv*", or a folder.
    pattern = not is_url(path) and (Path(path).is_dir() or glob.has_magic(str(path)))
    endings = {_ending(file.name) for file in _found(str(path))} if pattern else set()
    return bool(endings & _SEPARATORS.keys()) and ".parquet" not in endings


def _ending(path: str) -> str:
    return Path(path.lower().removesuffix(_GZIP)).suffix


def _matches(path: str) -> list[Path]:
    if is_url(path):
        raise WorkflowError(
            f"Expected local CSV and TSV files. Received: {path}. Copy it to this machine, or give "
            "a frame: polars.scan_csv(path)."
        )
    files = _found(path)
    if not files:
        raise WorkflowError(
            f"No file matches {path!r}. Expected a CSV or TSV file or a glob pattern; names that "
            'begin with "." or "_" are ignored.'
        )
    other = next((file for file in files if _ending(file.name) not in _SEPARATORS), None)
    if other is not None:
        raise WorkflowError(
            f"Expected CSV and TSV files alone for {path!r}. Received also: {other}. Narrow the "
            "pattern, as in 'folder/*.csv'."
        )
    expect_once(path, ((file, ()) for file in files))
    return [file.absolute() for file in files]


def _found(path: str) -> list[Path]:
    """The files of a path, a folder or a pattern."""
    if Path(path).is_file():
        return [Path(path)]
    pattern = str(Path(glob.escape(path)) / "*") if Path(path).is_dir() else path
    # A link that leads nowhere is an error where it is read.
    return [
        file
        for file in sorted(local_matches(pattern))
        if not file.name.startswith(_HIDDEN) and (file.is_file() or not file.exists())
    ]


def _opened(path: Path, overrides: Any, nulls: Sequence[str]) -> TextFile:
    """A text file, whose lines have all been read once.

    Raises:
        WorkflowError: as `DelimitedTable`.
    """
    with _reading(path):
        state = state_of(path)
        names = _header(path)
        _expect_lines(path, len(names))
        fixed = overrides(names)
        scan = pl.scan_csv(
            path,
            separator=_separator(path),
            infer_schema_length=None,
            null_values=[*nulls],
            glob=False,
        )
        # By position: Polars keeps the doubled quotes of a name.
        types = dict(zip(names, scan.collect_schema().dtypes(), strict=True)) | fixed
        rows = _scan(path, types, nulls)
        inferred, words = _types_of_texts(rows, types, fixed)
        inferred |= _types_of_integers(rows, types)
        days = _impossible_days(rows, [n for n, t in inferred.items() if t.is_temporal()])
    return TextFile(path, names, *state, types | inferred, words, days)


def _types_of_texts(
    rows: pl.LazyFrame, types: Mapping[str, pl.DataType], fixed: Mapping[str, pl.DataType]
) -> tuple[dict[str, pl.DataType], dict[str, str]]:
    """Types of the columns that Polars takes for strings, and texts that stand for null in them.

    A column of nulls alone has the type of null, one of dates or times in ISO 8601 their type; Polars' own
    inference of dates takes ten times as long.

    Returns:
        Those types, by column; and for each column of numbers, dates or times that also holds a word for
        null, such as "NA", what else it holds.
    """
    text_types: dict[str, pl.DataType] = {}
    words: dict[str, str] = {}
    texts = [name for name, dtype in types.items() if dtype == pl.String()]
    if not texts:
        return text_types, words
    counts = [pl.col(texts).count()] + [
        pl.col(texts).str.contains(pattern).sum().name.suffix(suffix)
        for suffix, (pattern, _) in _SPOILT.items()
    ]
    is_word = pl.col(texts).str.to_lowercase().is_in(_NULL_WORDS)
    counts.append(is_word.sum().name.suffix("\nwords"))
    counted = rows.select(counts).collect(engine="streaming")
    for name in texts:
        count = counted[name][0]
        kinds = [t for suffix, (_, t) in _TIMES.items() if counted[name + suffix][0] == count]
        if not count:
            text_types[name] = pl.Null()
        elif kinds and name not in fixed:
            text_types[name] = kinds[0]
        missing = counted[f"{name}\nwords"][0]
        spoilt = [
            k for suffix, (_, k) in _SPOILT.items() if counted[name + suffix][0] + missing == count
        ]
        if spoilt and 0 < missing < count and name not in fixed:
            words[name] = spoilt[0]
    return text_types, words


def _types_of_integers(
    rows: pl.LazyFrame, types: Mapping[str, pl.DataType]
) -> dict[str, pl.DataType]:
    """The type uint64 for columns that Polars takes for Int128, where it holds all values."""
    wide = [name for name, dtype in types.items() if dtype == pl.Int128()]
    if not wide:
        return {}
    in_range = rows.select(pl.col(wide).is_between(0, 2**64 - 1).all()).collect(engine="streaming")
    return {name: pl.UInt64() for name in wide if in_range[name][0]}


def _impossible_days(rows: pl.LazyFrame, names: Sequence[str]) -> dict[str, str]:
    """A text with a day that no calendar has, such as 2023-02-29, of each column with one."""
    if not names:
        return {}
    wrong = [
        pl.col(name)
        .filter(pl.col(name).str.head(10).str.to_date("%Y-%m-%d", strict=False).is_null())
        .min()
        for name in names
    ]
    days = rows.select(wrong).collect(engine="streaming").row(0, named=True)
    return {name: text for name, text in days.items() if text is not None}


def _with_leading_zeros(
    path: Path, types: Mapping[str, pl.DataType], names: Sequence[str], nulls: Sequence[str]
) -> list[str]:
    """The named columns of integers in which a value is written as 007."""
    if not names:
        return []
    texts = _scan(path, {**types} | dict.fromkeys(names, pl.String()), nulls)
    coded = pl.col(*names).str.contains(r"^[+-]?0\d").any()
    with _reading(path):
        flags = texts.select(coded).collect(engine="streaming")
    return [name for name in names if flags[name][0]]


def _is_null(dtype: pl.DataType) -> bool:
    return dtype == pl.Null()


def _scan(path: Path, types: Mapping[str, pl.DataType], nulls: Sequence[str]) -> pl.LazyFrame:
    read_as = {n: pl.String() if _is_null(dtype) else dtype for n, dtype in types.items()}
    return pl.scan_csv(
        path,
        separator=_separator(path),
        # By position: Polars takes a doubled quote in a header for two.
        has_header=False,
        skip_rows=1,
        schema=read_as,
        null_values=[*nulls],
        glob=False,
    )


def _separator(path: Path) -> str:
    return _SEPARATORS[_ending(path.name)]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into ours."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise WorkflowError(_fault(path) or f"{path} is not UTF-8.") from error
    except EOFError as error:
        raise WorkflowError(_truncated(path)) from error
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        if not getattr(error, "strerror", None) and (fault := _fault(path)) is not None:
            raise WorkflowError(fault) from error
        raise WorkflowError(f"{path} cannot be read: {reason}. {_ADVICE}") from error


def _bytes(path: Path) -> IO[bytes]:
    return (
        cast("IO[bytes]", gzip.open(path)) if path.name.lower().endswith(_GZIP) else path.open("rb")
    )


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The fields of each record, and the number of its last line; lines are those of Polars."""
    with io.TextIOWrapper(_bytes(path), encoding="utf-8-sig", newline="\n") as file:
        reader = csv.reader(file, delimiter=_separator(path), strict=True)
        try:
            for fields in reader:
                yield reader.line_num, fields
        except csv.Error as error:
            raise WorkflowError(
                f"Line {reader.line_num} of {path} cannot be read: {first_line(error)}. {_ADVICE}"
            ) from error


def _header(path: Path) -> tuple[str, ...]:
    _, names = next(_records(path), (0, []))
    if not names:
        raise WorkflowError(
            f"Expected a header with the names of columns in {path}. Received: none."
        )
    if len(set(names)) < len(names) or "" in names:
        remedy = (
            " R, and pandas without index=False, write the names of rows in a column without a name: pass "
            "polars.scan_csv(path).drop('')."
        )
        raise WorkflowError(
            f"Expected a header of different names in {path}. Received: {listed(map(repr, names))}."
            f"{remedy if names.count('') == 1 else ''}"
        )
    separators = [sign for sign in (";", "\t", "|", ",") if len(names) == 1 and sign in names[0]]
    if separators:
        raise WorkflowError(
            f"Expected names separated by {_separator(path)!r} in the header of {path}. "
            f"Received: {names[0]!r:.200}. Pass polars.scan_csv(path, separator={separators[0]!r})."
        )
    return tuple(names)


def _expect_lines(path: Path, fields: int) -> None:
    """Refuse lines with another number of fields; Polars fills short ones with nulls."""
    line = pl.col("line")
    count = line.str.replace_all('"[^"]*"', "").str.count_matches(_separator(path), literal=True)
    odd = (count != fields - 1) | line.str.count_matches('"', literal=True).mod(2).ne(0)
    # A field of several lines is odd as well, and no error.
    if (
        pl.scan_lines(path, name="line", glob=False)
        .filter(odd)
        .head(1)
        .collect(engine="streaming")
        .is_empty()
    ):
        return
    for number, record in _records(path):
        if len(record) != fields and (record or fields > 1):
            raise WorkflowError(
                f"Expected {fields} fields in line {number} of {path}, as in its header. "
                f"Received: {len(record) or 'an empty line'}. Correct the line, or remove it."
            )
    if (stray := _stray_quote(path)) is not None:
        raise WorkflowError(stray)


def _stray_quote(path: Path) -> str | None:
    """An error's text for a single quote within an unquoted field, or text behind a quoted one.

    Polars takes such a quote for the beginning of a field or its end, by its place in the file.
    """
    separator = _separator(path)
    other = f'[^"{separator}]'
    quoted, plain = '"(?:[^"]|"")*', f'{other}+(?:"{other}*"{other}*)*'
    field = f'(?:{quoted}"|{plain}|)'
    whole, beginning = (
        re.compile(pattern)
        for pattern in (
            rf"{field}(?:{separator}{field})*\r?\n?",
            f"(?:{field}{separator})*{quoted}",
        )
    )
    record = ""
    with io.TextIOWrapper(_bytes(path), encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            record += line
            if whole.fullmatch(record):
                record = ""
            elif not beginning.fullmatch(record):
                return (
                    f"Line {number} of {path} cannot be read: {line.rstrip()!r:.100} has a quote within a "
                    f"field, or text behind one. {_ADVICE}"
                )
    return None


def _fault(path: Path) -> str | None:
    """An error's text for a file with other bytes than UTF-8, or a quote where none may be."""
    with path.open("rb") as packed:
        if (advice := zip_advice(path, packed.read(len(ZIP)))) is not None:
            return f"{path} cannot be read: {advice}"
    try:
        with _bytes(path) as file:
            for number, line in enumerate(file, 1):
                if not _is_utf8(line):
                    return (
                        f"Line {number} of {path} is not UTF-8. Convert it: iconv -f LATIN1 -t UTF-8 "
                        "OLD > NEW, with its encoding for LATIN1. Or pass "
                        'polars.scan_csv(path, encoding="utf8-lossy"), which replaces such characters.'
                    )
        return _stray_quote(path)
    except EOFError:
        return _truncated(path)
    except OSError:  # a damaged archive: the caller has a reason
        return None


def _truncated(path: Path) -> str:
    return f"{path} ends in the middle, like a truncated copy. Copy it again."


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _null_word(file: TextFile, name: str, nulls: Sequence[str]) -> str:
    """An error's text for a column of numbers, dates or times with a word for null among them."""
    place, kind = file.names.index(name), file.words[name]
    dates = "" if kind == "numbers" else ", try_parse_dates=True"
    number, word = next(
        (number, record[place])
        for number, record in _records(file.path)
        if number > 1
        and record
        and record[place].lower() in _NULL_WORDS
        and record[place] not in nulls
    )
    return (
        f"Expected {kind} in column {name!r}, or text. Received: {kind}, and {word!r} in line {number} "
        f"of {file.path}. If it is null, pass --null-value {shlex.quote(word)} to the command, or in Python "
        f"polars.scan_csv(path, null_values=[{word!r}], infer_schema_length=None{dates}); if it is a code, pass "
        f"polars.scan_csv(path, schema_overrides={{{name!r}: polars.String}})."
    )


def _no_day(file: TextFile, name: str) -> str:
    """An error's text for a column of dates or times with a day that no calendar has."""
    place, text = file.names.index(name), file.days[name]
    number = next(n for n, record in _records(file.path) if record and record[place] == text)
    return (
        f"Expected dates or times in column {name!r}. Received: {text!r} in line {number} of {file.path}, a day "
        "that no calendar has. Correct it, or empty the field; where the column is text, pass "
        f"polars.scan_csv(path, schema_overrides={{{name!r}: polars.String}})."
    )


def _no_value(file: TextFile, column: ColumnSchema, nulls: Sequence[str]) -> str:
    """An error's text for a column of numbers, booleans or times with text in it."""
    name = column.name
    place = file.names.index(name)
    for number, record in _records(file.path):
        text = record[place] if number > 1 and record else ""
        if text and text not in nulls and not _is_value(text, column):
            return (
                f"Expected {column} in column {name!r}, as the workflow was fitted. "
                f"Received: {text!r:.100} in line {number} of {file.path}. Null is an empty "
                "field; where the file has a word for it, pass --null-value WORD to the command, or in "
                "Python polars.scan_csv(path, null_values=[word], infer_schema_length=None)."
            )
    return f"Expected {column} in column {name!r}, as the workflow was fitted. Received: text."


def _is_value(text: str, column: ColumnSchema) -> bool:
    if column.is_time:
        kind = {DATE: _DAYS, NAIVE: _MOMENTS}.get(column.time, _ZONED)
        return re.match(_TIMES[kind][0], text) is not None
    if column.info.kind == "bool":
        return text in ("true", "false")
    try:
        float(text)
    except ValueError:
        return False
    return True
