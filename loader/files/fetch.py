"""Row groups of objects, fetched into memory before they are decoded."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from workflow.data.checksums import MAGIC, ColumnChunk
from workflow.data.objects import ObjectPath

# Reads that are fetched while another one is decoded.
AHEAD = 2
# Those that may wait, of all iterators together; the oldest ones were given up.
_WAITING = 2 * AHEAD
# One connection rarely has the whole speed of a link.
_CONNECTIONS = 16
# The most bytes of a request, and the most unwanted ones between two ranges to fetch them as one.
_REQUEST, _GAP = 8_000_000, 250_000

# A file, and the number of a row group in it.
Place = tuple[str, int]


class RemoteFile(NamedTuple):
    """An object, and the places of the wanted columns in it.

    Attributes:
        path: its path.
        chunks: the column chunks of each row group.
    """

    path: ObjectPath
    chunks: Sequence[Sequence[ColumnChunk]]

    def ranges(self, groups: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Begin and end of the requests for some row groups."""
        places = sorted((c.start, c.start + c.size) for group in groups for c in self.chunks[group])
        joined: list[list[int]] = []
        for start, end in places:
            if joined and start - joined[-1][1] <= _GAP:
                joined[-1][1] = max(end, joined[-1][1])
            else:
                joined.append([start, end])
        for start, end in joined:
            for part in range(start, end, _REQUEST):
                yield part, min(part + _REQUEST, end)


class Copy:
    """A sparse copy of an object in memory, which other libraries open by its path.

    It holds the footer, and the ranges that are written to it.
    """

    def __init__(self, path: ObjectPath) -> None:
        self._descriptor = os.memfd_create("parquet-loader")
        size = path.state[0]
        os.ftruncate(self._descriptor, size)
        self.write(0, MAGIC)
        self.write(size - len(path.end), path.end)

    def __del__(self) -> None:
        os.close(self._descriptor)

    @property
    def path(self) -> Path:
        """Its path in this process, for as long as the copy exists."""
        return Path(f"/proc/self/fd/{self._descriptor}")

    def write(self, start: int, content: bytes) -> None:
        """Write bytes to a place."""
        os.pwrite(self._descriptor, content, start)


class _Fetch(NamedTuple):
    copies: dict[str, Copy]
    waiting: list[Future[None]]

    def cancel(self) -> None:
        for future in self.waiting:
            future.cancel()

    def result(self) -> dict[str, Copy]:
        try:
            for future in self.waiting:
                future.result()
        except BaseException:
            self.cancel()
            raise
        return self.copies


class Fetcher:
    """A fetcher of objects' row groups, in the background inside of `with`: its threads end with it.

    Several iterators may use it at once.

    Args:
        files: the objects by path.
    """

    def __init__(self, files: Mapping[str, RemoteFile]) -> None:
        self._files = files
        self._users = 0
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._waiting: dict[tuple[Place, ...], _Fetch] = {}

    def __enter__(self) -> Self:
        with self._lock:
            self._users += 1
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_CONNECTIONS, "parquet-loader-fetch")
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._pool is None:
                return
            pool, self._pool = self._pool, None
            self._waiting.clear()
        pool.shutdown(cancel_futures=True)

    def announce(self, places: Sequence[Place]) -> None:
        """Begin to fetch row groups that will be taken soon, together."""
        key = self._own(places)
        with self._lock:
            if not key or key in self._waiting or self._pool is None:
                return
            self._waiting[key] = self._begin(self._pool, key)
            while len(self._waiting) > _WAITING:
                self._waiting.pop(next(iter(self._waiting))).cancel()

    def take(self, places: Sequence[Place]) -> dict[str, Copy]:
        """Copies of the objects among the files of some row groups, which they contain.

        Raises:
            OSError: an object was removed or written since it was listed; `filename` is its path.
            WorkflowError: a store cannot be reached.
        """
        key = self._own(places)
        with self:
            with self._lock:
                fetch = self._waiting.pop(key, None)
                if fetch is None and self._pool is not None:
                    fetch = self._begin(self._pool, key)
            return {} if fetch is None else fetch.result()

    def _own(self, places: Sequence[Place]) -> tuple[Place, ...]:
        return tuple(place for place in places if place[0] in self._files)

    def _begin(self, pool: ThreadPoolExecutor, places: Sequence[Place]) -> _Fetch:
        groups: dict[str, set[int]] = {}
        for path, group in places:
            groups.setdefault(path, set()).add(group)
        copies = {path: Copy(self._files[path].path) for path in groups}
        return _Fetch(
            copies,
            [
                pool.submit(_fetch, self._files[path].path, copies[path], start, end)
                for path, row_groups in groups.items()
                for start, end in self._files[path].ranges(row_groups)
            ],
        )


def _fetch(path: ObjectPath, copy: Copy, start: int, end: int) -> None:
    try:
        copy.write(start, path.read(start, end))
    except OSError as error:
        error.filename = str(path)
        raise
