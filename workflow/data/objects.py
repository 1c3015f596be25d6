"""Objects of a bucket as they were listed, by paths in the manner of pathlib."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from workflow.errors import WorkflowError

from .bucket import Bucket, State

T = TypeVar("T")
# Requests that wait for a store at the same time.
CONNECTIONS = 32
# Objects in an answer to a request for a list, of all stores at least.
PAGE = 1_000
PARQUET = ".parquet"


class Listing:
    """The objects of a bucket that were listed at once, by their keys.

    Args:
        objects: their states.
        folders: the folders among them that were listed without their content.
        place: the folder that was listed, and whether with the content of its folders, to list it
            again; None for other objects.

    Attributes:
        children: keys directly below each folder.
        folders: keys of folders.
        objects: states of objects, but for the empty ones that stand for folders. A key of parquet
            can be an object and a folder as well, which `ObjectPath.is_dir` refuses.
    """

    def __init__(
        self,
        objects: Mapping[str, State],
        folders: Iterable[str] = (),
        place: tuple[str, bool] | None = None,
    ) -> None:
        self.place = place
        children: dict[str, set[str]] = defaultdict(set)
        for key in (*objects, *folders):
            path = key
            while path and path not in children[parent := path.rpartition("/")[0]]:
                children[parent].add(path)
                path = parent
        self.children = dict(children)
        # The console of S3 makes an empty object for a folder.
        marks = (
            key for key, (size, _) in objects.items() if not size and "." not in last_name(key)
        )
        self.folders = {*children, *folders, *marks}
        self.objects = {
            key: state
            for key, state in objects.items()
            if key not in self.folders or (state[0] and key.endswith(PARQUET))
        }


class ObjectPath:
    """Path of an object or a folder of objects as they were listed, in the manner of `pathlib.Path`.

    Args:
        bucket: the bucket.
        key: its place in the bucket.
        listing: the objects around it.

    Attributes:
        bucket: the bucket.
        listing: the objects around it.
        end: its last bytes, as far as they are kept.
    """

    def __init__(self, bucket: Bucket, key: PurePosixPath, listing: Listing) -> None:
        self.bucket = bucket
        self._path = key
        self.listing = listing
        self.end = b""

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.listing.objects.get(self.key)
        return ObjectPath, (
            self.bucket,
            self._path,
            Listing({} if state is None else {self.key: state}),
        )

    @property
    def key(self) -> str:
        """The place in the bucket."""
        return "/".join(self._path.parts)

    def __str__(self) -> str:
        return f"{self.bucket.root}/{self.key}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: ObjectPath | Path) -> bool:
        return self.parts < other.parts

    def __truediv__(self, name: str) -> ObjectPath:
        return self._at(self._path / name)

    def _at(self, key: PurePosixPath) -> ObjectPath:
        return ObjectPath(self.bucket, key, self.listing)

    @property
    def parts(self) -> tuple[str, ...]:
        """The bucket's URL and the names below it."""
        return (self.bucket.root, *self._path.parts)

    @property
    def name(self) -> str:
        """The last name."""
        return self._path.name

    @property
    def parent(self) -> ObjectPath:
        """The folder around it."""
        return self._at(self._path.parent)

    def with_suffix(self, suffix: str) -> ObjectPath:
        """The same path with another suffix."""
        return self._at(self._path.with_suffix(suffix))

    def absolute(self) -> ObjectPath:
        """The path itself."""
        return self

    def is_absolute(self) -> bool:
        """Whether it is a whole path, which it always is."""
        return True

    def is_file(self) -> bool:
        """Whether it is an object."""
        return self.key in self.listing.objects

    def is_dir(self) -> bool:
        """Whether there are objects below it.

        Raises:
            WorkflowError: there is parquet of this very name too, as no file system has.
        """
        is_folder = self.key in self.listing.folders
        if is_folder and self.is_file():
            raise WorkflowError(
                f"Expected an object or a folder. Received: {self}, which is an object, and a folder "
                "with others. Move the object into the folder, or rename it."
            )
        return is_folder

    def exists(self) -> bool:
        """Whether it is an object or a folder."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects and folders directly below it."""
        return (self._at(PurePosixPath(k)) for k in self.listing.children.get(self.key, ()))

    def matches(self) -> Iterator[ObjectPath]:
        """The listed objects and folders that match the path as a pattern of `glob.glob`."""
        pattern = self._path.parts
        for key in (*self.listing.objects, *self.listing.folders):
            if key and _match(key.split("/"), pattern):
                yield self._at(PurePosixPath(key))

    @property
    def state(self) -> State:
        """Size and ETag when it was listed.

        Raises:
            FileNotFoundError: it was not among the objects.
        """
        try:
            return self.listing.objects[self.key]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such object") from None

    def state_now(self) -> State:
        """Size and ETag now; raises as `read` does."""
        return self.bucket.state(self.key)

    def read(self, start: int, end: int) -> bytes:
        """The bytes from one place to another, of the object as it was listed.

        Raises:
            OSError: the object has been removed or written since.
            WorkflowError: the store cannot be reached or refuses the request.
        """
        return self.bucket.get(self.key, self.state[1], range=(start, end))

    def read_bytes(self) -> bytes:
        """All bytes; raises as `read` does."""
        return self.bucket.get(self.key, self.state[1])

    def last(self, count: int) -> bytes:
        """The last bytes, all if there are fewer; kept in `end`, so that they are read once."""
        size, tag = self.state
        count = min(count, size)
        if len(self.end) < count:
            # Azure has no ranges from the end.
            self.end = self.bucket.get(self.key, tag, range=(size - count, size))
        return self.end[len(self.end) - count :]


AnyPath = Path | ObjectPath


def state_of(path: AnyPath) -> tuple[int, int | str | None]:
    """The size of a file, and the time of its last change or the ETag of an object when it was listed.

    Raises:
        OSError: there is no such file.
        WorkflowError: its name is not UTF-8, as which Polars reads it.
    """
    if isinstance(path, ObjectPath):
        return path.state
    expect_utf8(path)
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def expect_utf8(path: Path) -> None:
    """Refuse a path that Polars cannot take.

    Raises:
        WorkflowError: it is not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise WorkflowError(
            f"Expected a path in UTF-8. Received: {os.fsencode(path)!r}. Rename the file or its folder."
        ) from error


def state_now(path: AnyPath) -> tuple[int, int | str | None]:
    """The same for an object as it is now; raises as `ObjectPath.read` does."""
    return path.state_now() if isinstance(path, ObjectPath) else state_of(path)


def listed_again(paths: Sequence[ObjectPath]) -> dict[ObjectPath, State]:
    """Sizes and ETags now, of the objects that are listed in fewer requests than one for each.

    Raises:
        WorkflowError: a store cannot be listed.
    """
    together: dict[int, list[ObjectPath]] = defaultdict(list)
    for path in paths:
        together[id(path.listing)].append(path)
    states: dict[ObjectPath, State] = {}
    for group in together.values():
        bucket, listing = group[0].bucket, group[0].listing
        if listing.place is None or len(listing.objects) >= PAGE * (len(group) - 1):
            continue
        folder, deep = listing.place
        now, _ = bucket.list(folder, deep=deep)
        states |= {path: now[path.key] for path in group if path.key in now}
    return states


def fetch_ends(paths: Iterable[AnyPath], count: int) -> None:
    """Read the last bytes of all objects among some paths at once, for `ObjectPath.last` to return.

    Raises:
        WorkflowError: a store cannot be reached.
    """

    def fetch(path: ObjectPath) -> None:
        with suppress(OSError):  # raised again where the path is read
            path.last(count)

    for_each(fetch, [path for path in paths if isinstance(path, ObjectPath)])


def for_each(call: Callable[[T], object], items: Sequence[T]) -> None:
    """Call a function with each item, in threads since they wait for a store; raise its first error."""
    if not items:
        return
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        for waiting in [pool.submit(call, item) for item in items]:
            waiting.result()
    finally:
        pool.shutdown(cancel_futures=True)


def last_name(key: str) -> str:
    """The part of a key after its last slash."""
    return key.rpartition("/")[2]


def _match(names: list[str], pattern: tuple[str, ...]) -> bool:
    """Whether names match the parts of a pattern, of which `**` stands for any number of folders."""
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _match(names, pattern[1:]) or _match(names[1:], pattern)
    return fnmatchcase(names[0], pattern[0]) and _match(names[1:], pattern[1:])
