"""One parquet file: its footer, read once, and the reasons why it may be unreadable."""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.errors import WorkflowError, expect_no_interrupt, first_line

from .checksums import MAGIC, Checksums, read_footer
from .frames import (
    UNREADABLE,
    extension_error,
    extension_errors,
    is_held,
    type_error,
    zip_advice,
)
from .objects import AnyPath, ObjectPath, for_each, listed_again, state_now, state_of
from .partition_keys import Key

# The last bytes of a file whose footer is encrypted too.
_ENCRYPTED = b"PARE"
# Bytes of the signature of a footer that is not, though columns are: a nonce and a tag.
_SIGNATURE = 28
# Schemas that are remembered; files of that many kinds may alternate.
_KINDS = 8
# The columns, the error texts of columns that are not read, those of columns that cuDF does not read, and
# the names of columns of INT96.
Columns = tuple[dict[str, pl.DataType], dict[str, str], dict[str, str], frozenset[str]]


class _ColumnTypeError(TypeError):
    """Polars lacks the type of a column."""


class FooterSchemas:
    """The schemas of footers; footers that differ only in their row groups are read once."""

    def __init__(self) -> None:
        self._known: list[tuple[pq.FileMetaData, Columns]] = []

    def of(self, footer: pq.FileMetaData, raw: bytes) -> Columns:
        """The columns of a file, and the reasons why some of them are not read.

        Args:
            footer: pyarrow's form.
            raw: the same footer from `read_footer`.
        """
        for like, columns in self._known:
            if footer.schema.equals(like.schema) and footer.metadata == like.metadata:
                return columns
        arrow = footer.schema.to_arrow_schema()
        unread = extension_errors(arrow)
        with warnings.catch_warnings():  # about types that are in `unread`
            warnings.simplefilter("ignore", UserWarning)
            try:
                schema = dict(pl.read_parquet_schema(io.BytesIO(raw)))
            except UNREADABLE as error:
                if text := type_error(arrow) or _interval_error(footer):
                    raise _ColumnTypeError(text) from error
                raise
        unread |= {n: extension_error(n, str(t)) for n, t in schema.items() if not is_held(t)}
        unread |= _repeated_errors(footer, schema)
        times = (pl.Datetime("ns"), pl.List(pl.Datetime("ns")))
        int96 = frozenset(_stored_as(footer, "INT96", schema, times))
        columns = schema, unread, _unread_by_cudf(footer, schema), int96
        self._known = [(footer, columns), *self._known[: _KINDS - 1]]
        return columns


def _interval_error(footer: pq.FileMetaData) -> str | None:
    """The error text for the first column of intervals, which pyarrow takes for bytes."""
    leaves = (footer.schema.column(number) for number in range(len(footer.schema)))
    path = next((leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"), None)
    if path is None:
        return None
    return f"Polars cannot read its column {path!r}, an interval, and so none of the others"


def _repeated_errors(footer: pq.FileMetaData, schema: dict[str, pl.DataType]) -> dict[str, str]:
    """The error texts of columns that repeat without being a group of a list: Polars reads none of their values."""
    if not any(isinstance(dtype, pl.List) for dtype in schema.values()):
        return {}
    leaves = (footer.schema.column(number) for number in range(len(footer.schema)))
    return {
        leaf.path: f"Expected column {leaf.path!r} as a list with parquet's annotation. Received: a repeated "
        "field, as parquet-protobuf writes it, whose lists Polars reads as empty. Pass "
        "pyarrow.parquet.read_table(path), or write it with parquet.proto.writeSpecsCompliant=true."
        for leaf in leaves
        if leaf.max_repetition_level and leaf.path in schema
    }


def _unread_by_cudf(footer: pq.FileMetaData, schema: dict[str, pl.DataType]) -> dict[str, str]:
    """Columns of uint32 that are stored as int64, as in pyarrow's files until version 6: cuDF keeps int64."""
    return {
        name: f"cuDF reads column {name!r} as int64, since parquet's version 1.0 has no uint32. Write the "
        "file again with version 2.4 or later, or read it on the CPU."
        for name in _stored_as(footer, "INT64", schema, (pl.UInt32(), pl.List(pl.UInt32)))
    }


def _stored_as(
    footer: pq.FileMetaData,
    physical: str,
    schema: dict[str, pl.DataType],
    types: Sequence[pl.DataType],
) -> list[str]:
    """The columns of some types that a file holds as one of parquet's own types."""
    names = [name for name, dtype in schema.items() if dtype in types]
    leaves = [footer.schema.column(n) for n in range(len(footer.schema))] if names else []
    columns = {
        leaf.path if leaf.max_repetition_level == 0 else leaf.path.rsplit(".", 2)[0]
        for leaf in leaves
        if leaf.physical_type == physical
    }
    return [name for name in names if name in columns]


class ParquetFile(NamedTuple):
    """A parquet file as its footer described it when it was listed.

    Attributes:
        path: path of the file.
        schema: its columns.
        unread: its columns that are not read, by name, each with an error's text.
        unread_by_cudf: likewise, those that cuDF does not read.
        int96: its columns of times as INT96, of which Polars takes those beyond 1677 to 2262 for the last one.
        groups: the rows of each row group.
        size: its size in bytes.
        changed: time of its last modification, in nanoseconds; of an object its ETag.
        checksums: checksums of its pages, if this package wrote it.
        keys: columns from the names of its folders; columns in the file itself precede them.
        footer_sum: CRC-32 of the footer, in which files of other contents differ.
    """

    path: AnyPath
    schema: dict[str, pl.DataType]
    unread: dict[str, str]
    unread_by_cudf: dict[str, str]
    int96: frozenset[str]
    groups: tuple[int, ...]
    size: int
    changed: int | str | None
    checksums: Checksums | None
    keys: tuple[Key, ...] = ()
    footer_sum: int = 0

    @classmethod
    def read(
        cls, path: AnyPath, keys: tuple[Key, ...] = (), schemas: FooterSchemas | None = None
    ) -> ParquetFile:
        """Read a footer.

        Args:
            path: path of the file.
            keys: as the attribute.
            schemas: known schemas of other files that are read together with it.

        Raises:
            WorkflowError: the file cannot be read as parquet; names it.
        """
        return cls.read_with_footer(path, keys, schemas)[0]

    @classmethod
    def read_with_footer(
        cls, path: AnyPath, keys: tuple[Key, ...] = (), schemas: FooterSchemas | None = None
    ) -> tuple[ParquetFile, pq.FileMetaData]:
        """Read a footer, and keep pyarrow's form; arguments and errors as of `read`."""
        try:
            size, changed = state_of(path)
            raw, checksums = read_footer(path)
            footer = _decoded(path, raw)
            columns = (schemas or FooterSchemas()).of(footer, raw)
            groups = tuple(footer.row_group(n).num_rows for n in range(footer.num_row_groups))
        except WorkflowError:
            raise
        except (*UNREADABLE, OSError) as error:
            expect_no_interrupt(error)
            raise WorkflowError(
                f"{path} cannot be read as parquet: {_reason(path, error)}"
            ) from error
        file = cls(path, *columns, groups, size, changed, checksums, keys, zlib.crc32(raw))
        return file, footer

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.groups)

    def expect_unchanged(self) -> None:
        """Raise if the file was removed or written since it was listed.

        Raises:
            WorkflowError: names the file.
        """
        try:
            now = state_now(self.path)
        except OSError as error:
            received = f"{error.strerror or error}"
        else:
            if now == (self.size, self.changed):
                return
            received = "another file of this name, written since"
        raise WorkflowError(
            f"Expected {self.path} as it was when the data was listed. Received: {received}. "
            "Write new data to another folder while this one is read."
        )

    def expect_sound(self, groups: Iterable[int], columns: Iterable[str]) -> None:
        """Check pages that have checksums and were not checked before.

        Those of an object are not: it would be transferred twice. Stores check what they hold, and
        the loader compares each column that it has read.

        Args:
            groups: numbers of row groups.
            columns: names of columns.

        Raises:
            WorkflowError: names file, row group and column.
        """
        if self.checksums is None or isinstance(self.path, ObjectPath):
            return
        try:
            damage = self.checksums.damaged(groups, columns)
        except OSError as error:
            raise WorkflowError(
                f"{self.path} cannot be read: {error.strerror or error}."
            ) from error
        if damage is not None:
            raise WorkflowError(
                f"{self.path} is damaged in row group {damage[0]}. Column {damage[1]!r} differs from its "
                "checksum: write the file again."
            )


def expect_unchanged(files: Sequence[ParquetFile]) -> None:
    """Raise if one of some files was removed or written since it was listed.

    Raises:
        WorkflowError: names the file.
    """
    for file in files:
        if not isinstance(file.path, ObjectPath):
            file.expect_unchanged()
    objects = {f.path: f for f in files if isinstance(f.path, ObjectPath)}
    states = listed_again(list(objects))
    # A list may be older than the object.
    unsure = [f for path, f in objects.items() if states.get(path) != (f.size, f.changed)]
    for_each(ParquetFile.expect_unchanged, unsure)


def _decoded(path: AnyPath, raw: bytes) -> pq.FileMetaData:
    """A footer in pyarrow's form, which ends the process when it is asked about an encrypted column.

    Raises:
        WorkflowError: columns are encrypted.
    """
    encrypted = raw.endswith(_ENCRYPTED)
    if not encrypted:
        footer = pq.read_metadata(io.BytesIO(raw))
        encrypted = len(raw) - len(MAGIC) - 8 == footer.serialized_size + _SIGNATURE
    if encrypted:
        raise WorkflowError(
            f"{path} cannot be read as parquet: it is encrypted. Decrypt it first: "
            "pyarrow.parquet.read_table(path, decryption_properties=...) gives a table to pass."
        )
    return footer


# Readers by the first bytes of a file.
_READERS = {
    b"Obj": "polars.read_avro",
    b"ARRO": "polars.scan_ipc",
    b"{": "polars.scan_ndjson",
    b"[": "polars.read_json",
    b"ORC": "polars.DataFrame(pyarrow.orc.read_table",
}


def _reason(file: AnyPath, error: BaseException) -> str:
    """The reason why a file's schema cannot be read."""
    repeats = isinstance(error, pl.exceptions.DuplicateError)
    if repeats or isinstance(error, _ColumnTypeError | pa.ArrowNotImplementedError):
        remedy = (
            "Write each column under another name"
            if repeats
            else "Cast the column before it is written"
        )
        return f"{first_line(error)}. {remedy}."
    try:
        start, end, size = _ends(file)
    except OSError as unread:
        is_pipe = isinstance(unread, io.UnsupportedOperation)
        pipe = "it is a pipe or a device. Write its content to a file, and pass that"
        return f"{pipe if is_pipe else unread.strerror or unread}."
    if not size:
        return "it is empty."
    if start != MAGIC:
        readers = (r for opening, r in _READERS.items() if start.startswith(opening))
        reader = next(readers, "polars.scan_csv")
        closed = ")" * (1 + reader.count("("))
        return zip_advice(file, start) or (
            "it is not a parquet file. `fit`, `transform` and `inspect` take CSV and TSV by files that end "
            f"with .csv or .tsv. Pass another format as a frame, such as {reader}(path{closed}, or "
            f'convert it in a shell: python -c "import polars{", pyarrow.orc" * ("orc" in reader)}; '
            f"{reader}('{file}'{closed}.lazy().sink_parquet('{_beside(file)}')\""
        )
    if end != MAGIC:
        return f"it ends after {size:,} bytes in the middle, like a truncated copy."
    return "its footer is damaged."


def _beside(file: AnyPath) -> AnyPath:
    """The path of the parquet to make of a file, which is never that file itself."""
    path = file.with_suffix(".parquet")
    return path if str(path) != str(file) else file.with_suffix(".converted.parquet")


def _ends(file: AnyPath) -> tuple[bytes, bytes, int]:
    """The first and the last bytes of a file, and its size."""
    count = len(MAGIC)
    if isinstance(file, ObjectPath):
        size = file.state[0]
        return file.read(0, min(count, size)) if size else b"", file.last(count), size
    with file.open("rb") as opened:
        start = opened.read(count)
        size = opened.seek(0, 2)
        opened.seek(max(0, size - count))
        return start, opened.read(), size
