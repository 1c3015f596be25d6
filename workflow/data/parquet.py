"""Parquet files that form one table, though their types may differ."""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from workflow.errors import WorkflowError, expect_no_interrupt, unread
from workflow.expressions.polars.series import column_schema, polars_dtype
from workflow.schema.dtypes import SchemaError
from workflow.schema.schema import DATE, NAIVE, ColumnSchema, Schema, are_alike_times

from .bucket import Bucket, store_reason
from .delimited import DelimitedTable
from .frames import NOT_UTF8, is_not_utf8
from .objects import AnyPath, ObjectPath
from .parquet_file import ParquetFile, expect_unchanged
from .partition_keys import Key, key_literal, key_type, names_for_polars

# The most recent reads that may be running when one of them fails: at least one for each thread.
RECENT = 16
# Objects up to this size wait longer for an answer of their store than for their bytes.
_SMALL = 1_000_000
# Rows are decoded again to locate damage, but at most this many bytes of files.
SEARCHED_BYTES = 2_000_000_000
# Errors of queries that say nothing about the bytes in a file.
_NOT_OF_FILES = (
    pl.exceptions.ColumnNotFoundError,
    pl.exceptions.SchemaError,
    pl.exceptions.DuplicateError,
    pl.exceptions.InvalidOperationError,
)
# Polars' errors of object stores contain it.
_OF_STORES = "object-store error"
# The types beside int64 and float64 of a column that may be int64.
_WITH_FLOATS = {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.Float64}
# The last time that Polars holds as nanoseconds.
_LAST = 2**63 - 1
# Casts that one scan may do to unify types; fewer than `common_type` allows.
_CASTS = pl.ScanCastOptions(
    integer_cast=["upcast", "allow-float"],
    float_cast="upcast",
    datetime_cast=["millisecond-upcast", "nanosecond-downcast", "convert-timezone"],
    categorical_to_string="allow",
)


class Rows(NamedTuple):
    """Rows of a table that were read at once.

    Attributes:
        start: the number of the first one.
        end: the number after the last one.
    """

    start: int
    end: int


class ParquetTable:
    """Files that form one table: the columns that all of them have, each with one type.

    A file may have a column with a type whose values another file's type holds without loss: int32
    beside int64, or nothing but nulls. The keys of a file's folders are columns of it.

    Args:
        files: in the order of the rows.
        one_scan: read files of several types in one scan where Polars can cast them. cuDF cannot,
            and needs a scan for each run of files with the same types.
        known: columns whose types are known: a key of strings is read as such, whatever the names of
            these folders look like.

    Attributes:
        files: the files.
        schema: the columns.
        conflicts: the columns that are not in the table, by name, each with an error's text.

    Example:
        >>> pl.DataFrame({"a": [1]}, {"a": pl.Int32}).write_parquet("1.parquet")
        >>> pl.DataFrame({"a": [2]}, {"a": pl.Int64}).write_parquet("2.parquet")
        >>> from pathlib import Path
        >>> files = [ParquetFile.read(Path(name)) for name in ("1.parquet", "2.parquet")]
        >>> ParquetTable(files).scan().collect()["a"].to_list()
        [1, 2]
    """

    def __init__(
        self, files: Sequence[ParquetFile], *, one_scan: bool = True, known: Schema | None = None
    ) -> None:
        self.files = list(files)
        self._one_scan = one_scan
        self.schema: dict[str, pl.DataType] = {}
        self.conflicts: dict[str, str] = {}
        self._key_types = _key_types(self.files, known or Schema())
        columns = [self._columns(file) for file in self.files]
        # Many files have few distinct schemas, and comparing one of each is enough.
        kinds = {tuple(schema.items()): n for n, schema in reversed([*enumerate(columns)])}
        for name in dict.fromkeys(name for schema in columns for name in schema):
            self._add(name, [(self.files[n].path, columns[n]) for n in sorted(kinds.values())])
        self._recent: deque[Rows] = deque(maxlen=RECENT)
        for file in self.files:
            texts = file.unread if one_scan else file.unread_by_cudf | file.unread
            for name, text in texts.items():
                self.conflicts.setdefault(name, f"{file.path}: {text}")
                self.schema.pop(name, None)

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def are_small_objects(self) -> bool:
        """Whether all files are in stores, and so small that requests are what costs."""
        in_stores = all(isinstance(file.path, ObjectPath) for file in self.files)
        return in_stores and sum(file.size for file in self.files) <= _SMALL * len(self.files)

    def rows_of(self, size: int) -> int:
        """The number of rows in that many bytes of the files, on average."""
        return self.rows * size // max(1, sum(file.size for file in self.files))

    def _columns(self, file: ParquetFile) -> dict[str, pl.DataType]:
        """The columns of a file, followed by those from the names of its folders."""
        if not file.keys:
            return file.schema
        keys = {name: self._key_types[name] for name, _ in file.keys if name not in file.schema}
        return file.schema | keys

    def _add(self, name: str, kinds: Sequence[tuple[AnyPath, dict[str, pl.DataType]]]) -> None:
        have = [(path, columns[name]) for path, columns in kinds if name in columns]
        if len(have) < len(kinds):
            without = next(path for path, columns in kinds if name not in columns)
            self.conflicts[name] = (
                f"The files do not form one table. {without} has no column {name!r}, "
                f"which {have[0][0]} has."
            )
            if name not in self._key_types:
                self.conflicts[name] += (
                    " If it is null there, pass polars.concat(map(polars.scan_parquet, files), "
                    'how="diagonal").'
                )
            return
        common = have[0][1]
        for path, dtype in have:
            merged = common_type(common, dtype)
            if merged is None:
                other = next((one for one in have if common_type(one[1], dtype) is None), have[0])
                self.conflicts[name] = (
                    f"The files do not form one table. Column {name!r} is {other[1]} in {other[0]} "
                    f"and {dtype} in {path}, which no type holds without loss. Write it as one type."
                )
                return
            common = merged
        self.schema[name] = common

    def with_whole_numbers(self) -> ParquetTable:
        """The same files; a column that is int64 in some and float64 in others is int64 if it can be.

        pandas writes integers as floats where one is missing. All such floats are read.

        Raises:
            WorkflowError: a file is damaged, or has changed since it was listed.
        """
        chosen = copy.copy(self)
        chosen.schema, chosen.conflicts = {}, dict(self.conflicts)
        for name in self._columns(self.files[0]):
            if name in self.schema:
                chosen.schema[name] = self.schema[name]
            elif (dtype := self._integers(name)) is not None:
                chosen.schema[name] = dtype
                del chosen.conflicts[name]
        return chosen

    def _integers(self, name: str) -> pl.DataType | None:
        """The type of integers that a column of integers and of floats can have, if there is one."""
        types = {file.schema.get(name) for file in self.files} - {pl.Null()}
        kinds = {None if dtype is None else element_type(dtype) for dtype in types} - {pl.Null()}
        is_list = {isinstance(dtype, pl.List | pl.Array) for dtype in types}
        if not {pl.Int64, pl.Float64} <= kinds <= _WITH_FLOATS or len(is_list) > 1:
            return None
        floats = copy.copy(self)
        floats.files = [f for f in self.files if element_type(f.schema[name]) == pl.Float64]
        floats.schema = {name: floats.files[0].schema[name]}
        value = pl.col(name)
        wrong = ((value != value.round()) | (value.abs() > 2**53)) & value.is_not_nan()
        with data_errors("The data cannot be read", floats):
            values = floats.scan()
            values = values.explode(name, empty_as_null=True) if True in is_list else values
            if not values.filter(wrong).head(1).collect().is_empty():
                return None
        return pl.List(pl.Int64()) if True in is_list else pl.Int64()

    def select(self, names: Iterable[str]) -> ParquetTable:
        """The same files with some of the columns."""
        chosen = copy.copy(self)
        chosen.schema = {name: self.schema[name] for name in names}
        return chosen

    def cast(self, schema: Mapping[str, pl.DataType]) -> ParquetTable:
        """The same files with some of the columns, as other types."""
        chosen = copy.copy(self)
        chosen.schema = dict(schema)
        return chosen

    def absolute(self) -> ParquetTable:
        """The same files by absolute paths, for processes with another working directory."""
        chosen = copy.copy(self)
        chosen.files = [file._replace(path=file.path.absolute()) for file in self.files]
        return chosen

    def part(self, start: int, end: int) -> ParquetTable:
        """The files from one index to another, with the same columns and types."""
        chosen = copy.copy(self)
        chosen.files = self.files[start:end]
        return chosen

    def scan(self) -> pl.LazyFrame:
        """The rows of the files, lazily.

        Raises:
            WorkflowError: a file was removed or written since it was listed.
        """
        return self._scan(self.files)

    def _scan(self, files: Sequence[ParquetFile], rows: Rows | None = None) -> pl.LazyFrame:
        """Scan files, or some of their rows, which begin in the first and end in the last of them."""
        # Each question to a store takes its latency: objects are compared once, after they are read.
        expect_unchanged([file for file in files if not isinstance(file.path, ObjectPath)])
        hive = self._hive_schema(files)
        scans, start = [], 0
        for read_as, group in groupby(files, key=lambda file: self._read_as(file, hive)):
            run = list(group)
            schema, keys, bucket = read_as
            scan = self._scan_run(run, dict(schema), dict(keys), hive, bucket)
            end = start + sum(file.rows for file in run)
            # Slicing one scan of all costs Polars the square of the number of scans.
            if rows is not None and (rows.start > start or rows.end < end):
                first = max(rows.start - start, 0)
                scan = scan.slice(first, min(rows.end, end) - start - first)
            scans.append(scan)
            start = end
        return scans[0] if len(scans) == 1 else pl.concat(scans)

    def _hive_schema(self, files: Sequence[ParquetFile]) -> dict[str, pl.DataType]:
        """The types of the keys in all files' paths, if one scan of Polars can read them; else none."""
        keys = {name for file in files for name, _ in file.keys} & self.schema.keys()
        if not self._one_scan or not keys:
            return {}
        names = names_for_polars([file.path.parts for file in files]) or []
        # Polars would take the name of a folder, of one above the data too, for a column of a file.
        if any(name in file.schema for file in files for name in names):
            return {}
        return {name: self._key_types.get(name, pl.String()) for name in names}

    def _read_as(
        self, file: ParquetFile, hive: Mapping[str, pl.DataType]
    ) -> tuple[list[tuple[str, pl.DataType]], list[Key], Bucket | None]:
        """The types with which a scan reads a file, the table's where it can cast them; and its keys.

        Then its bucket, if it is in one.
        """
        have = file.schema
        bucket = file.path.bucket if isinstance(file.path, ObjectPath) else None
        keys = [] if hive else [(n, v) for n, v in file.keys if n in self.schema and n not in have]
        if not self._one_scan:
            return list(have.items()), keys, bucket
        types = {n: t for n, t in self.schema.items() if n in have}
        cast = [(n, t if _is_cast(have[n], t) else have[n]) for n, t in types.items()]
        return cast, keys, bucket

    def _scan_run(
        self,
        run: Sequence[ParquetFile],
        schema: dict[str, pl.DataType],
        keys: dict[str, str | None],
        hive: dict[str, pl.DataType],
        bucket: Bucket | None,
    ) -> pl.LazyFrame:
        scan = pl.scan_parquet(
            [str(file.path) for file in run],
            glob=False,
            schema=schema,
            hive_partitioning=bool(hive),
            hive_schema=hive or None,
            cast_options=_CASTS if self._one_scan else None,
            extra_columns="ignore" if self._one_scan else "raise",
            **({} if bucket is None else bucket.polars),
        )
        if list(schema.items()) == list(self.schema.items()) and not hive:
            return scan
        return self._columns_of(scan, schema | hive, keys)

    def columns_of(self, scan: pl.LazyFrame, file: ParquetFile) -> pl.LazyFrame:
        """The table's columns for rows of one file.

        Args:
            scan: scan of the file as it is, or of some of its rows.
            file: a file of the table.
        """
        keys = {n: v for n, v in file.keys if n in self.schema and n not in file.schema}
        return self._columns_of(scan, file.schema, keys)

    def _columns_of(
        self, scan: pl.LazyFrame, have: dict[str, pl.DataType], keys: dict[str, str | None]
    ) -> pl.LazyFrame:
        types = have | {name: self._key_types[name] for name in keys}
        if keys:  # before the selection: a selection of keys alone would have one row
            scan = scan.with_columns(key_literal(v, types[n]).alias(n) for n, v in keys.items())
        casts = {n: _converted(n, types[n], t) for n, t in self.schema.items() if types[n] != t}
        return scan.select([casts.get(n, n) for n in self.schema])

    def pieces(self, rows: int) -> Iterator[pl.LazyFrame]:
        """The rows in runs of row groups, so that each row group is decoded once.

        Args:
            rows: the most rows of a piece; more only where one row group has more.
        """
        return (self._rows(*run) for run in self._runs(rows))

    def rows_of_pieces(self, rows: int) -> list[int]:
        """The number of rows of each of the `pieces`."""
        return [end - start for start, end, _, _ in self._runs(rows)]

    def _runs(self, rows: int) -> Iterator[tuple[int, int, int, int]]:
        """The first row, the one after the last, and the first and last file of each piece."""
        groups = [(n, rows) for n, file in enumerate(self.files) for rows in file.groups or (0,)]
        starts = list(accumulate((rows for _, rows in groups), initial=0))
        first = 0
        for last in range(1, len(groups) + 1):
            if last == len(groups) or starts[last + 1] - starts[first] > rows:
                yield starts[first], starts[last], groups[first][0], groups[last - 1][0]
                first = last

    def slices(self, rows: int, start: int = 0, end: int | None = None) -> Iterator[pl.LazyFrame]:
        """The rows from one index to another in slices of exactly `rows` rows, and the remainder.

        Args:
            rows: rows of a slice. A row group on the border of two slices is decoded for both.
            start: the index of the first row.
            end: the index after the last row; None for all rows.
        """
        last = self.rows if end is None else min(end, self.rows)
        firsts = range(start, max(last, start + 1), rows)
        return (self.slice(first, min(rows, last - first)) for first in firsts)

    def slice(self, start: int, rows: int) -> pl.LazyFrame:
        """Exactly `rows` rows from an index on, or the remaining ones."""
        ends = list(accumulate(file.rows for file in self.files))
        end = min(start + rows, ends[-1])
        first = bisect_right(ends, start, hi=len(ends) - 1)
        return self._rows(start, end, first, max(first, bisect_left(ends, end)))

    def _rows(self, start: int, end: int, first: int, last: int) -> pl.LazyFrame:
        """The rows from one index to another, which are in the files from `first` to `last`."""
        self._recent.append(Rows(start, end))
        before = sum(file.rows for file in self.files[:first])
        self._expect_sound(Rows(start - before, end - before), first, last)
        return self._scan(self.files[first : last + 1], Rows(start - before, end - before))

    def expect_unchanged(self) -> None:
        """Raise if a file was removed or written since it was listed.

        Raises:
            WorkflowError: names the file.
        """
        expect_unchanged(self.files)

    def expect_times(self) -> None:
        """Refuse times of INT96 that Polars does not hold, and takes for the last one that it does.

        Spark writes INT96 by default, and often 9999-12-31 in it. The table's columns of it are read.

        Raises:
            WorkflowError: names column and file; or a file is damaged, or has changed since it was listed.
        """
        int96 = {name for file in self.files for name in file.int96}
        for name in sorted(int96 & self.schema.keys()):
            files = [file for file in self.files if name in file.int96]
            if not self._has_last(name, files):
                continue
            path = next(file.path for file in files if self._has_last(name, [file]))
            raise WorkflowError(
                f"Expected times from 1677 to 2262 in column {name!r} of {path}, since INT96 is read as "
                "nanoseconds. Received: another one, or the very last. Write microseconds, in Spark with "
                "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, or pass pyarrow.parquet."
                'read_table(path, coerce_int96_timestamp_unit="us").'
            )

    def _has_last(self, name: str, files: Sequence[ParquetFile]) -> bool:
        """Whether a column of nanoseconds in some files has the last of all times."""
        times = copy.copy(self)
        times.files, times.schema = list(files), {name: files[0].schema[name]}
        is_list = isinstance(times.schema[name], pl.List)
        with data_errors("The data cannot be read", times):
            values = times.scan()
            values = values.explode(name, empty_as_null=True) if is_list else values
            last = values.filter(pl.col(name).to_physical() == _LAST).head(1)
            return not last.collect(engine="streaming").is_empty()

    def expect_sound(self) -> None:
        """Check all pages of the table's columns that have checksums.

        Raises:
            WorkflowError: names file, row group and column.
        """
        for file in self.files:
            file.expect_sound(range(len(file.groups)), self.schema)

    def _expect_sound(self, rows: Rows, first: int, last: int) -> None:
        """Check the row groups that contain some rows, counted from the file `first` on."""
        start = 0
        for file in self.files[first : last + 1]:
            groups = []
            for number, count in enumerate(file.groups):
                if _overlap(Rows(start, start + count), rows):
                    groups.append(number)
                start += count
            file.expect_sound(groups, self.schema)

    def damage(self) -> str | None:
        """The first row group that cannot be decoded: first of recent reads, then of all rows.

        Decodes the table's columns, for at most `SEARCHED_BYTES` of files, and none of objects, which
        would be transferred again.

        Returns:
            A text that names file and row group, and a column of texts that are not UTF-8; None if all
            decoded rows are sound.
        """
        places = [
            (Rows(start, start + rows), first, file, group)
            for file, first in zip(self.files, self._starts(), strict=False)
            for group, (start, rows) in enumerate(
                zip(accumulate(file.groups, initial=first), file.groups, strict=False)
            )
        ]
        places.sort(key=lambda place: not any(_overlap(place[0], r) for r in self._recent))
        budget = SEARCHED_BYTES
        for rows, first, file, group in places:
            if isinstance(file.path, ObjectPath):
                continue
            rows_of_file = Rows(rows.start - first, rows.end - first)
            if (error := self._fault(file, group, rows_of_file)) is not None:
                names = self.schema if is_not_utf8(error) else ()
                name = next((n for n in names if self._fault(file, group, rows_of_file, n)), None)
                if name is None:
                    return f"{file.path} is damaged in row group {group}."
                return (
                    f"Expected UTF-8 in column {name!r} of {file.path}. Received: other bytes, in row group "
                    f'{group}. {NOT_UTF8} pyarrow.parquet.read_table(path)[{name!r}].cast("binary") has them.'
                )
            budget -= file.size // len(file.groups)
            if budget < 0:
                break
        return None

    def _starts(self) -> list[int]:
        return list(accumulate((file.rows for file in self.files), initial=0))

    def _fault(
        self, file: ParquetFile, group: int, rows: Rows, column: str | None = None
    ) -> BaseException | None:
        """The error of decoding a row group, or a column of it; its rows are counted from the file's first."""
        file.expect_sound([group], self.schema)
        try:
            frame = self._scan([file], rows)
            (frame if column is None else frame.select(column)).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            return error
        return None


@contextmanager
def data_errors(what: str, files: ParquetTable | DelimitedTable | None = None) -> Iterator[None]:
    """Turn Polars' errors about data into one of ours; all others pass unchanged.

    Args:
        what: the failed action, for the message.
        files: the source of the data, to name a file that is damaged or has changed.

    Raises:
        WorkflowError: `what`, and the file or Polars' reason; or a file has changed since it
            was listed.
    """
    try:
        yield
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        OSError,
    ) as error:
        expect_no_interrupt(error)
        damage = None
        if files is not None:
            files.expect_unchanged()
            damage = None if isinstance(error, _NOT_OF_FILES) else files.damage()
        reason = store_reason(error) if _OF_STORES in str(error) else unread(error)
        raise WorkflowError(f"{what}: {damage or reason + '.'}") from error
    if files is not None:
        files.expect_unchanged()


def _key_types(files: Sequence[ParquetFile], schema: Schema) -> dict[str, pl.DataType]:
    texts: dict[str, set[str | None]] = {}
    for name, text in (key for file in files for key in file.keys):
        texts.setdefault(name, set()).add(text)
    fitted = {column.name: _fitted_type(column) for column in schema.columns}
    # Of a key that is null everywhere, as of any column without values, the type is that of the fit.
    return {
        n: fitted[n]
        if n in fitted and (fitted[n] == pl.String or values == {None})
        else key_type(values)
        for n, values in texts.items()
    }


def _fitted_type(column: ColumnSchema) -> pl.DataType:
    return pl.Date() if column.time == DATE else polars_dtype(column.dtype)


def _overlap(one: Rows, other: Rows) -> bool:
    return one.start < other.end and other.start < one.end


def _is_cast(have: pl.DataType, dtype: pl.DataType) -> bool:
    """Whether a scan of Polars can read a column as the table's type."""
    while isinstance(have, pl.List) and isinstance(dtype, pl.List):
        have, dtype = inner_type(have), inner_type(dtype)
    return (
        have == dtype
        or have in (pl.Null, pl.Categorical)
        or have.is_integer()
        or (have.is_float() and dtype.is_float())
        or isinstance(have, pl.Datetime)
    )


def _converted(name: str, have: pl.DataType, dtype: pl.DataType) -> pl.Expr:
    to_integers = element_type(have).is_float() and element_type(dtype).is_integer()
    return as_integers(name, have) if to_integers else pl.col(name).cast(dtype)


def as_integers(name: str, have: pl.DataType) -> pl.Expr:
    """A column of floats that are whole numbers, or of lists of them, as int64; NaN becomes null.

    Example:
        >>> ids = pl.DataFrame({"id": [7.0, float("nan")]})
        >>> ids.select(as_integers("id", pl.Float64()))["id"].to_list()
        [7, None]
    """
    column, is_list = pl.col(name), isinstance(have, pl.List | pl.Array)
    value = (pl.element() if is_list else column).fill_nan(None).cast(pl.Int64)
    lists = column.arr.to_list() if isinstance(have, pl.Array) else column
    return lists.list.eval(value) if is_list else value


def common_type(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    """The type that holds the values of two others without loss, if there is one.

    Example:
        >>> common_type(pl.UInt32(), pl.Int32())
        Int64
        >>> common_type(pl.Int64(), pl.Float64())  # 2**53 + 1 is no float
    """
    if one == other or pl.Null in (one, other):
        return other if one == pl.Null else one
    if isinstance(one, pl.List | pl.Array) and isinstance(other, pl.List | pl.Array):
        inner = common_type(inner_type(one), inner_type(other))
        return None if inner is None else pl.List(inner)
    return _common_scalar(one, other)


def _common_scalar(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    try:
        a, b = column_schema("", one), column_schema("", other)
    except SchemaError:
        return None
    if a.is_list or b.is_list or not are_alike_times(a.time, b.time):
        return None
    if a.time:
        # Times without a common zone are in UTC.
        return pl.Datetime("us", None if a.time == NAIVE else a.time if a.time == b.time else "UTC")
    return polars_dtype(a.dtype) if a.dtype == b.dtype else _common_number(a.dtype, b.dtype)


def element_type(dtype: pl.DataType) -> pl.DataType:
    """The type of a list's elements; of a column without lists its own."""
    return inner_type(dtype) if isinstance(dtype, pl.List | pl.Array) else dtype


def inner_type(dtype: pl.List | pl.Array) -> pl.DataType:
    """The type of a list's elements."""
    inner = dtype.inner
    return inner() if isinstance(inner, type) else inner


def _common_number(one: str, other: str) -> pl.DataType | None:
    if {one, other} & {"string", "bool"}:
        return None
    common = np.promote_types(one, other)
    # A float holds integers of at most 53 bits.
    lossy = common.kind == "f" and {one, other} & {"int64", "uint64"}
    return None if lossy else polars_dtype(common.name)
