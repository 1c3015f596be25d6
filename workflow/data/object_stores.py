"""The object stores of one call: S3, Google Cloud Storage and Azure, by paths with a scheme."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any

from workflow.errors import WorkflowError

from .bucket import Bucket
from .objects import PARQUET, Listing, ObjectPath, last_name

# Those of Polars and of obstore alike.
SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/*(.*)", re.DOTALL)
# What others write for the beginning of a path: Hadoop and Spark, Dask, pyiceberg.
_OTHERS = {"s3a": "s3://", "s3n": "s3://", "gcs": "gs://", "azure": "az://", "file": ""}
# A URL as pathlib changes it.
_COLLAPSED = re.compile(rf"({'|'.join(SCHEMES)}):/+", re.IGNORECASE)

# The only option that the libraries take as a number.
_RETRIES = "max_retries"
_FEW = re.compile("[0-9]{1,6}")


def is_url(path: Any) -> bool:
    """Whether a path begins with a scheme.

    Example:
        >>> is_url("s3://bucket/ratings"), is_url("ratings")
        (True, False)
    """
    return isinstance(path, str) and _URL.match(path) is not None


def expect_local(path: Any, error: type[Exception] = WorkflowError) -> None:
    """Refuse the path of an object where files are written or loaded.

    Raises:
        Exception: `error`; the path begins with a scheme.
    """
    if is_url(path) or _COLLAPSED.match(str(path)):
        received = _COLLAPSED.sub(r"\1://", str(path))
        raise error(
            f"Expected a path of this machine. Received: {received!r}. An object store renames "
            "nothing, so what is half-written would count: write to a local folder, and copy it when "
            "it is complete, as with `aws s3 sync FOLDER s3://BUCKET/FOLDER`. To read it, copy it here."
        )


def expect_whole(path: Any) -> None:
    """Refuse a URL that was turned into a path of the file system.

    Raises:
        WorkflowError: it was.
    """
    if not is_url(path) and _COLLAPSED.match(str(path)):
        raise WorkflowError(
            f"Expected the path of an object as text, such as 's3://bucket/key'. Received: {path!r}. "
            "pathlib removes a slash after the scheme: leave it out."
        )


def is_below(url: str, folder: str) -> bool:
    """Whether a path of objects lies in a folder, however both are spelled.

    Raises:
        WorkflowError: the scheme of one is unknown.

    Example:
        >>> is_below("s3://shop//raw/./made", "s3://shop/raw/"), is_below("s3://shop/raws", "s3://shop/raw")
        (True, False)
    """
    *store, key = _split(url)
    *other, above = _split(folder)
    inside = PurePosixPath(key).parent
    return store == other and inside.is_relative_to(PurePosixPath(above))


class Objects:
    """The object stores of one call, where each folder is listed once.

    Raises:
        WorkflowError: they are not a dict by names, or a value has another type than the store takes.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not (
            isinstance(options, Mapping) and all(isinstance(key, str) for key in options)
        ):
            # Without the options themselves, which may be secret.
            raise WorkflowError(
                'Expected storage_options as a dict, such as {"aws_region": "eu-west-1"}. '
                f"Received: {type(options).__name__}."
            )
        self._options = {key: _option(key, value) for key, value in (options or {}).items()}
        self._buckets: dict[str, Bucket] = {}
        self._listings: dict[tuple[str, str, bool], Listing] = {}

    def expect_used(self) -> None:
        """Refuse storage options without a path that they are for.

        Raises:
            WorkflowError: there are options, and no path had a scheme.
        """
        if self._options and not self._buckets:
            raise WorkflowError(
                "Expected storage_options with paths such as s3://bucket/key only. "
                f"Received: {', '.join(sorted(self._options))}, and no such path. Leave them out."
            )

    def path(self, url: str) -> ObjectPath:
        """List the objects around a path.

        Args:
            url: path of an object or a folder, or a pattern.

        Raises:
            WorkflowError: the scheme is unknown, or the store cannot be listed.
        """
        scheme, bucket, key = _split(url)
        root = f"{scheme}://{bucket}"
        store = self._buckets.setdefault(root, Bucket(root, self._options))
        path = PurePosixPath(key)
        return ObjectPath(store, path, self._around(store, path.parts))

    def _around(self, bucket: Bucket, parts: tuple[str, ...]) -> Listing:
        literal = next((n for n, part in enumerate(parts) if has_magic(part)), len(parts))
        folder, rest = "/".join(parts[:literal]), parts[literal:]
        if len(rest) > 1 or "**" in rest:
            return self._listed(bucket, folder, deep=True)
        if rest:
            near = self._listed(bucket, folder, deep=False)
            inside = near.folders.intersection(near.children.get(folder, ()))
            # As on a disk, a folder of this very name counts before the pattern.
            names = map(last_name, inside)
            deep = any(name == rest[0] or fnmatchcase(name, rest[0]) for name in names)
            return self._listed(bucket, folder, deep=True) if deep else near
        # Mostly a file; and of many in a list, all are listed together.
        parent = "/".join(parts[:-1])
        if folder.endswith(PARQUET):
            near = self._listed(bucket, parent, deep=False)
            if folder in near.objects:
                return near
        below = self._listed(bucket, folder, deep=True)
        return below if below.objects else self._listed(bucket, parent, deep=False)

    def _listed(self, bucket: Bucket, folder: str, *, deep: bool) -> Listing:
        place = bucket.root, folder, deep
        if place not in self._listings:
            content = bucket.list(folder, deep=deep)
            self._listings[place] = Listing(*content, (folder, deep))
        return self._listings[place]


def _option(key: str, value: Any) -> str | int:
    """A storage option as the libraries take it: a whole number of retries, otherwise text."""
    if key == _RETRIES:
        if isinstance(value, bool) or not _FEW.fullmatch(str(value)):
            raise WorkflowError(
                f'Expected {key} in storage_options as a whole number, such as "2". '
                f"Received: {value!r:.100}."
            )
        return int(value)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        # Without the value, which may be secret.
        raise WorkflowError(
            f"Expected {key!r:.100} in storage_options as text, or True or False. "
            f"Received: {type(value).__name__}. Write it as text."
        )
    return value


def _split(url: str) -> tuple[str, str, str]:
    """Scheme, bucket and key of a URL."""
    match = _URL.fullmatch(url)
    scheme, bucket, key = match.groups() if match else ("", "", url)
    if scheme not in SCHEMES or not bucket:
        advice = "Copy data of another kind to one of these, or to a local folder."
        if (prefix := _OTHERS.get(scheme)) is not None:
            advice = f"Write {prefix}{url.partition('://')[2]}."
        raise WorkflowError(
            f"Expected a local path, or one of {', '.join(f'{s}://BUCKET/KEY' for s in SCHEMES)}. "
            f"Received: {url!r:.200}. {advice}"
        )
    return scheme, bucket, key
