"""The parquet files of a path, folder or pattern; of a published data set, exactly its files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from workflow.errors import WorkflowError
from workflow.expressions.program.safetensors_file import FormatError
from workflow.files.sealed import sealed, unsealed
from workflow.files.store_commands import remove_command
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import listed
from workflow.schema.schema import Schema
from workflow.schema.tags import fits_of, other_fits

from .checksums import MAGIC
from .object_stores import Objects, expect_whole, is_url
from .objects import PARQUET, AnyPath, ObjectPath, state_of
from .partition_keys import Key, keys_in
from .table_formats import expect_no_tables

# Written last: its presence makes the files that it names a data set.
SCHEMA_FILE = "_schema.json"
# A folder that exists from the beginning of a run to its end.
UNFINISHED = ".writing"
# The object that marks such a folder of a store.
MARK = f"{UNFINISHED}/lock"
FORMAT = 2
# Of names that Hive, Impala and others give to parquet.
_OTHER_SUFFIXES = ("", ".parq", ".pq", PARQUET)
# pandas and pyarrow ignore such names as well.
_HIDDEN = (".", "_")


class DataFile(NamedTuple):
    """A parquet file, and the record of it by the run that wrote it.

    Attributes:
        path: path of the file.
        rows: number of rows that it must have; None for a file that no run published.
        size: size in bytes that it must have; None likewise.
        keys: columns from the names of the folders above it, starting below the given folder.
    """

    path: AnyPath
    rows: int | None = None
    size: int | None = None
    keys: tuple[Key, ...] = ()

    def below(self, depth: int) -> DataFile:
        """The same file, without the keys of the first `depth` folders of its path."""
        return self._replace(keys=keys_in(self.path.parts[depth:-1]))

    def expect_size(self) -> None:
        """Check that a published file exists with its published size.

        Raises:
            WorkflowError: it does not.
        """
        if self.size is None:
            return
        try:
            size = state_of(self.path)[0]
        except OSError as error:
            self._refuse(f"{self.size} bytes", (error.strerror or str(error)).lower())
        if size != self.size:
            self._refuse(f"{self.size} bytes", f"{size} bytes")

    def expect_rows(self, rows: int) -> None:
        """Check the number of rows in the footer of a published file.

        Raises:
            WorkflowError: the number differs.
        """
        if self.rows is not None and rows != self.rows:
            self._refuse(f"{self.rows} rows", f"{rows} rows")

    def _refuse(self, expected: str, received: str) -> None:
        raise WorkflowError(
            f"Expected {self.path} with {expected}, as {self.path.parent / SCHEMA_FILE} says. "
            f"Received: {received}. Copy the whole folder again, or write it again."
        )


class PublishedData(NamedTuple):
    """The content of `_schema.json`: the columns of a data set, and its files in order."""

    schema: Schema
    files: tuple[DataFile, ...]

    def to_text(self) -> bytes:
        """The content of the file; without the folder's path, so that it can be moved."""
        files = {file.path.name: {"rows": file.rows, "bytes": file.size} for file in self.files}
        return sealed({"format": FORMAT, "columns": self.schema.to_json(), "files": files})


def published(folder: AnyPath) -> PublishedData | None:
    """The data set that a run published in a folder, if there is one.

    Raises:
        WorkflowError: `_schema.json` cannot be read or is invalid, or a run into the folder has not
            ended.
    """
    # In this order: a run that ends in between writes its manifest before removing this marker.
    unfinished = (folder / UNFINISHED).exists()
    if (folder / SCHEMA_FILE).exists():
        return read_manifest(folder / SCHEMA_FILE, folder)
    if unfinished:
        raise WorkflowError(
            f"Expected a complete data set in {folder}. Received: one that a transform is "
            f"still writing, or was writing when it was killed. Wait for it to end. {if_killed(folder)}."
        )
    return None


def if_killed(folder: AnyPath) -> str:
    """The remedy for a folder that a killed transform has left, as a sentence without its stop."""
    if isinstance(folder, ObjectPath):
        mark = remove_command(f"{folder}/{MARK}", recursive=False)
        return (
            f"If it was killed, remove its parquet files, if it has any, and then its mark: {mark}"
        )
    return (
        "If it was killed, transform into the folder again, which removes the remains "
        f"({folder / UNFINISHED})"
    )


def schema_beside(files: Sequence[DataFile]) -> Schema | None:
    """The schema that a run wrote beside the first of some files, if there is one.

    Raises:
        WorkflowError: as `published` does; or another fit has made the files of another folder.
    """
    first, *folders = dict.fromkeys(file.path.parent for file in files)
    manifest = published(first)
    if manifest is None:
        return None
    fits = fits_of(manifest.schema.columns)
    for folder in folders if fits else ():
        other = published(folder)
        if other and (differ := other_fits(fits, fits_of(other.schema.columns))):
            raise WorkflowError(
                f"Expected files that one fit of a workflow has made. Received: {first} and {folder}, "
                f"in which another fit has made {listed(differ)}: equal ids stand for other values. "
                "Transform the data of both with one fitted workflow."
            )
    return manifest.schema


def read_manifest(path: AnyPath, folder: AnyPath) -> PublishedData:
    """Read a manifest of files in a folder.

    Raises:
        WorkflowError: it cannot be read, or has another format.
    """
    try:
        return _parsed(unsealed(path.read_bytes(), str(path)), folder)
    except (OSError, FormatError, SchemaError) as error:
        raise WorkflowError(
            f"Expected the columns and files of a data set, as transform_to_parquet writes them, in "
            f"{path}. Received: {error} Write the data again, or remove the file to read the folder "
            "as plain parquet, with schema=."
        ) from error


def _parsed(document: dict[str, Any], folder: AnyPath) -> PublishedData:
    if document.keys() != {"format", "columns", "files"} or document["format"] != FORMAT:
        raise FormatError(f"no columns and files of format {FORMAT}.")
    entries = document["files"]
    if not isinstance(entries, dict) or not entries:
        raise FormatError("no files.")
    files = tuple(_file_of(folder, name, entry) for name, entry in entries.items())
    return PublishedData(Schema.from_json(document["columns"]), files)


def _file_of(folder: AnyPath, name: str, entry: Any) -> DataFile:
    plain = Path(name).name == name and name.endswith(PARQUET) and not name.startswith(_HIDDEN)
    if not plain or not isinstance(entry, dict) or entry.keys() != {"rows", "bytes"}:
        raise FormatError(f"{name!r:.200} is not a file of the data set with rows and bytes.")
    if any(type(number) is not int or number < 0 for number in entry.values()):
        raise FormatError(f"{name!r:.200} needs rows and bytes as whole numbers.")
    return DataFile(folder / name, entry["rows"], entry["bytes"])


def data_files(path: str | os.PathLike[str], objects: Objects | None = None) -> list[DataFile]:
    """The parquet files that a path, a folder or a glob pattern names, sorted.

    Folders are searched recursively, as in pyarrow; names that begin with "." or "_" are ignored.
    In a folder with `_schema.json` the files are exactly those it names: an extra file is an error
    here, and a missing file is one where it is read, by `expect_size`. Folders named `key=value`
    below the given folder, or matched by the pattern, are columns.

    Args:
        path: the path; with a scheme such as s3:// that of objects.
        objects: the object stores of the call.

    Raises:
        WorkflowError: no file matches, a transform into a folder has not ended, a folder holds
            files other than those of its data set or is a table's of Delta Lake, Iceberg or Hudi, or links
            name a file twice.

    Example:
        >>> import polars as pl
        >>> for name in ("a", "_b", "c"):
        ...     Path(f"{name}.parquet").touch()
        >>> [file.path.name for file in data_files(".")]
        ['a.parquet', 'c.parquet']
    """
    root: AnyPath = (objects or Objects()).path(str(path)) if is_url(path) else Path(path)
    if root.is_dir():
        files = [file.below(len(root.parts)) for file in _of_folder(root)]
    elif root.is_file():
        files = _of_files([root])
    else:
        files = _of_pattern(root, str(path))
    if not files:
        expect_whole(path)
        raise WorkflowError(
            f"No parquet file matches {str(path)!r}. Expected a file, a folder with *.parquet files, "
            'or a glob pattern (of CSV: "folder/*.csv"); names that begin with "." or "_" are ignored.'
        )
    _expect_one_kind(str(path), files)
    if not root.is_file():
        expect_no_tables(file.path for file in files if file.rows is None)
    expect_once(str(path), ((file.path, file.keys) for file in files))
    # Polars would take a ~ at the beginning for the user's home, and the current folder may change.
    return [file._replace(path=file.path.absolute()) for file in files]


def parquet_below(folder: AnyPath) -> Iterator[AnyPath]:
    """The parquet files of a folder and its subfolders, sorted, whether published or not.

    Raises:
        WorkflowError: a folder cannot be listed, or is a link to one above it.
    """
    for path in _listed(folder):
        if path.is_dir():
            yield from parquet_below(path)
        elif path.name.endswith(PARQUET):
            yield path


def _listed(folder: AnyPath) -> list[AnyPath]:
    if isinstance(folder, Path) and folder.is_symlink():
        real = folder.resolve()
        if folder.parent.resolve().is_relative_to(real):
            raise WorkflowError(
                f"Expected a folder of its own. Received: {folder}, a link to {real}, in which it lies "
                "itself. Remove the link."
            )
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith(_HIDDEN))
    except OSError as error:
        raise WorkflowError(f"{folder} cannot be listed: {error.strerror or error}.") from error


def _of_folder(folder: AnyPath) -> Iterator[DataFile]:
    below = _listed(folder)
    # After the listing: the manifest shows a run that began and ended meanwhile.
    manifest = published(folder)
    if manifest is not None:
        _expect_named(folder, manifest, parquet_below(folder))
        yield from manifest.files
        return
    for path in below:
        if path.is_dir():
            yield from _of_folder(path)
        elif path.name.endswith(PARQUET):
            yield DataFile(path)
        else:
            _expect_no_parquet(path)


def _expect_no_parquet(path: AnyPath) -> None:
    """Refuse parquet under another name that writers give to it, whose rows would be left out.

    Hive names its files 000000_0, Impala x.parq. Others, such as x.parquet.tmp, are no data.
    """
    if Path(path.name).suffix.lower() not in _OTHER_SUFFIXES:
        return
    with suppress(OSError):
        if path.is_file() and state_of(path)[0] >= len(MAGIC) and _starts(path) == MAGIC:
            raise WorkflowError(
                f"Expected the parquet files of a folder by names that end with {PARQUET}. Received: {path}, "
                "which is parquet under another name. Rename it, pass a pattern that it matches, such as "
                f"{str(path.parent / '*')!r}, or move it out of the folder."
            )


def _starts(path: AnyPath) -> bytes:
    if isinstance(path, ObjectPath):
        return path.read(0, len(MAGIC))
    with path.open("rb") as file:
        return file.read(len(MAGIC))


def _of_files(paths: Sequence[AnyPath], pattern: str | None = None) -> list[DataFile]:
    """Files by their paths, and files of a published data set that match the pattern but are missing."""
    files = []
    for folder in dict.fromkeys(path.parent for path in paths):
        members = {path: None for path in paths if path.parent == folder}
        manifest = published(folder)
        if manifest is None:
            files += [DataFile(path) for path in members]
            continue
        _expect_named(folder, manifest, members)
        files += [f for f in manifest.files if f.path in members or _matches(f.path.name, pattern)]
    return files


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is not None and fnmatch(name, Path(pattern).name)


def _of_pattern(path: AnyPath, pattern: str) -> list[DataFile]:
    parts = path.parts
    # A name given literally may be hidden.
    literal = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    visible = [
        match
        for match in sorted(_matches_of(path, pattern))
        if not any(part.startswith(_HIDDEN) for part in match.parts[literal:])
    ]
    files = _of_files([path for path in visible if not path.is_dir()], pattern)
    for folder in visible:
        if folder.is_dir():
            files += _of_folder(folder)
    # A folder and its content may both match.
    unique_files = sorted(set(files), key=lambda file: file.path)
    return [file.below(literal) for file in unique_files]


def _matches_of(path: AnyPath, pattern: str) -> Iterator[AnyPath]:
    if isinstance(path, ObjectPath):
        return path.matches()
    return local_matches(pattern)


def local_matches(pattern: str, error: type[Exception] = WorkflowError) -> Iterator[Path]:
    """The files and folders that match a pattern of `glob.glob`, which passes over folders that it cannot list.

    Args:
        pattern: the pattern, absolute or not.
        error: the error's type.

    Raises:
        Exception: `error`; a folder in which files may match cannot be listed.
    """
    parts = Path(pattern).parts
    first = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    for end in range(first, len(parts)):
        for name in glob.iglob(str(Path(*parts[:end])), recursive=True):  # noqa: PTH207 - as below
            folder = Path(name)
            if folder.is_dir() and not any(p.startswith(_HIDDEN) for p in folder.parts[first:]):
                try:
                    os.scandir(folder).close()
                except OSError as reason:
                    raise error(f"{folder} cannot be listed: {reason.strerror}.") from reason
    return map(Path, glob.iglob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns too


def _expect_named(folder: AnyPath, manifest: PublishedData, paths: Iterable[AnyPath]) -> None:
    names = {file.path for file in manifest.files}
    extras = [path for path in paths if path not in names]
    if extras:
        raise WorkflowError(
            f"Expected in {folder} the parquet files that {SCHEMA_FILE} names and no others. "
            f"Received: {extras[0]}{f' and {len(extras) - 1} more' if extras[1:] else ''}. To read it "
            "as well, move it to its own folder and pass both paths in a list; else remove it."
        )


def _expect_one_kind(path: str, files: Sequence[DataFile]) -> None:
    """Refuse raw data with its own transformed data in a subfolder: each row would come twice."""
    plain = next((file.path for file in files if file.rows is None), None)
    output = next((file.path for file in files if file.rows is not None), None)
    if plain is not None and output is not None:
        raise WorkflowError(
            f"Expected either the data set of a transform or other parquet in {path!r}. Received: "
            f"both, {output} and {plain}. Pass the path you mean, or both paths in a list."
        )


def expect_once(
    given: str,
    files: Iterable[tuple[AnyPath, tuple[Key, ...]]],
    error: type[Exception] = WorkflowError,
) -> None:
    """Refuse links to files that are there as well: each of their rows would come twice.

    Args:
        given: the path, folder or pattern that names the files.
        files: paths, and the columns from the names of their folders, by which rows may differ.
        error: the error's type.

    Raises:
        Exception: `error`; two of the paths are one file, with equal columns.
    """
    folder = cache(Path.resolve)
    # No store has links.
    local = [(path, keys) for path, keys in files if isinstance(path, Path)]
    paths: dict[tuple[Path, tuple[Key, ...]], Path] = {}
    pairs = [
        (paths.setdefault((folder(path.parent) / path.name, keys), path), path)
        for path, keys in local
    ]
    # Two links to one file elsewhere may be two files of equal content, as where one is kept by its hash.
    pairs += [
        (paths.get((path.resolve(), keys), path), path) for path, keys in local if path.is_symlink()
    ]
    for other, path in pairs:
        if other is not path:
            raise error(
                f"Expected each file once in {given!r}. Received: {other} and {path}, which are one "
                "file by a link. Remove the link, or give a path or a pattern without it."
            )
