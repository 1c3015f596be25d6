"""Checksums of parquet files that this package writes, kept in the files themselves.

A flipped bit in a page usually decodes to other values without an error. Each file therefore ends
with a checksum for every column chunk and one for the footer, in the footer's extension field,
which other readers of parquet skip:
https://github.com/apache/parquet-format/blob/master/BinaryProtocolExtensions.md

The checksums are XXH3 of 64 bits (https://xxhash.com), which takes a twentieth of the time of reading.
They do not protect against attackers: anyone who can write the file can write its checksums.
"""

from __future__ import annotations

import io
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, chain
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from xxhash import xxh3_64, xxh3_64_intdigest

from .objects import AnyPath, ObjectPath

MAGIC = b"PAR1"
# Distinguishes our extension from others, as the format requires.
_MARK = bytes.fromhex("a3a306807a4843cc91f428d6e43a712a")
# Thrift's field 32767, which holds bytes, and Thrift's end of a struct.
_FIELD, _STOP = b"\x08\xff\xff\x01", b"\0"
# Most footers are shorter than this, and are read at once.
TAIL = 65_536
# Bytes of a file that are read at once. Python's lock is taken for each: fewer bytes hold up other threads.
_BLOCK = 2**20
# With more threads, reading is limited by the memory bus.
_MOST_THREADS = 16


class ColumnChunk(NamedTuple):
    """A column chunk: position and length of its bytes, and their checksum."""

    column: str
    start: int
    size: int
    checksum: int

    def is_of(self, columns: frozenset[str]) -> bool:
        """Whether it belongs to one of some columns, as `tags.list.element` does to `tags`."""
        return not columns.isdisjoint(_above(self.column))


class Checksums:
    """A checker of one file's column chunks, each once.

    Args:
        path: the file.
        chunks: column chunks of each row group.
    """

    def __init__(self, path: AnyPath, chunks: Sequence[Sequence[ColumnChunk]]) -> None:
        self._path = path
        self._chunks = chunks
        self._sound: set[tuple[int, int]] = set()

    def damaged(
        self, groups: Iterable[int], columns: Iterable[str], copy: Path | None = None
    ) -> tuple[int, str] | None:
        """The first column chunk that differs from its checksum, as row group and column.

        Args:
            groups: numbers of row groups.
            columns: names of columns; those not checked before are read.
            copy: a local file to read instead, as for an object.

        Raises:
            OSError: the file cannot be read.
        """
        names = frozenset(columns)
        places = [
            (group, number)
            for group in groups
            for number, chunk in enumerate(self._chunks[group])
            if (group, number) not in self._sound and chunk.is_of(names)
        ]
        if not places:
            return None
        threads = min(_MOST_THREADS, os.cpu_count() or 1, len(places))
        path = copy or self._path
        if isinstance(path, ObjectPath):
            raise TypeError("the checksums of an object are compared with a copy of its bytes")
        with path.open("rb", buffering=0) as file, ThreadPoolExecutor(threads) as pool:
            sums = pool.map(lambda place: _checksum(file, self._chunk(place)), places)
            for place, checksum in zip(places, sums, strict=True):
                if checksum != self._chunk(place).checksum:
                    return place[0], self._chunk(place).column
                self._sound.add(place)
        return None

    def _chunk(self, place: tuple[int, int]) -> ColumnChunk:
        return self._chunks[place[0]][place[1]]


def add_checksums(path: Path) -> None:
    """Write the checksums of a parquet file into its footer.

    Example:
        >>> import polars as pl
        >>> pl.DataFrame({"a": [1, 2]}).write_parquet("checked.parquet")
        >>> add_checksums(Path("checked.parquet"))
        >>> _, checksums = read_footer(Path("checked.parquet"))
        >>> checksums.damaged([0], ["a"])
        >>> raw = bytearray(Path("checked.parquet").read_bytes())
        >>> raw[10] ^= 1
        >>> _ = Path("checked.parquet").write_bytes(raw)
        >>> checksums = read_footer(Path("checked.parquet"))[1]
        >>> checksums.damaged([0], ["a"])
        (0, 'a')
    """
    with path.open("r+b", buffering=0) as file:
        raw = _read_end(partial(_last_of, file))
        chunks = chain.from_iterable(column_chunks(pq.read_metadata(io.BytesIO(raw))))
        sums = [_checksum(file, chunk) for chunk in chunks]
        body = struct.pack(f"<{len(sums)}Q", *sums)
        footer = raw[len(MAGIC) : -8].removesuffix(_STOP) + _FIELD + _varint(len(body) + 24) + body
        footer += struct.pack("<Q", xxh3_64_intdigest(footer)) + _MARK + _STOP
        file.seek(-(len(raw) - len(MAGIC)), os.SEEK_END)
        file.write(footer + struct.pack("<I", len(footer)) + MAGIC)


def read_footer(path: AnyPath) -> tuple[bytes, Checksums | None]:
    """A file's footer, read once.

    Returns:
        A parquet file of the footer alone, and the checksums of the pages, if it has any.

    Raises:
        ValueError: the footer differs from its checksum. pyarrow reports other damage when it reads
            the footer.
        OSError: the file cannot be read.
    """
    raw = _read_raw(path)
    footer = raw[len(MAGIC) : -8]
    mark = footer[-17:-1]
    # A damaged mark is still a mark.
    if sum(map(eq, mark, _MARK)) < len(_MARK) // 2:
        return raw, None
    sound = xxh3_64_intdigest(footer[:-25]) == int.from_bytes(footer[-25:-17], "little")
    if not (sound and footer.endswith(_MARK + _STOP)):
        raise ValueError("its footer is not as it was written")
    places = column_chunks(pq.read_metadata(io.BytesIO(raw)))
    count = sum(map(len, places))
    sums = iter(struct.unpack(f"<{count}Q", footer[-25 - 8 * count : -25]))
    chunks = [[chunk._replace(checksum=next(sums)) for chunk in group] for group in places]
    return raw, Checksums(path, chunks)


def _read_raw(path: AnyPath) -> bytes:
    if isinstance(path, ObjectPath):
        raw = _read_end(path.last, path.end)
        path.end = raw[len(MAGIC) :]  # of many files, the rest would take memory
        return raw
    with path.open("rb", buffering=0) as file:
        return _read_end(partial(_last_of, file))


def _read_end(last: Callable[[int], bytes], tail: bytes = b"") -> bytes:
    """The footer of a file, after the magic number with which a parquet file begins.

    Args:
        last: reads that many bytes from the end of the file, or all if it has fewer.
        tail: bytes from the end of the file, if some were read before.
    """
    tail = tail or last(TAIL)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = last(length)
    return MAGIC + tail[-length:]


def _last_of(file: io.FileIO, count: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - count))
    return file.read() or b""


def column_chunks(metadata: Any) -> list[list[ColumnChunk]]:
    """Places of the column chunks of each row group, from pyarrow's form of a footer."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return [[_place(group.column(n)) for n in range(group.num_columns)] for group in groups]


def _place(column: Any) -> ColumnChunk:
    start = column.data_page_offset
    if column.has_dictionary_page:
        start = min(start, column.dictionary_page_offset)
    return ColumnChunk(column.path_in_schema, start, column.total_compressed_size, 0)


def _above(leaf: str) -> Iterator[str]:
    """The columns that a leaf may belong to, `tags` for `tags.list.element`, and itself."""
    return accumulate(leaf.split("."), "{}.{}".format)


_buffers = threading.local()


def _checksum(file: io.FileIO, chunk: ColumnChunk) -> int:
    """The checksum of a chunk's bytes; fewer of them if the file has become shorter."""
    if not hasattr(_buffers, "block"):
        _buffers.block = memoryview(bytearray(_BLOCK))
    checksum = xxh3_64()
    for start in range(0, chunk.size, _BLOCK):
        block = _buffers.block[: chunk.size - start]
        have = os.preadv(file.fileno(), [block], chunk.start + start)
        checksum.update(block[:have])
    return checksum.intdigest()


def _varint(number: int) -> bytes:
    """An unsigned number as Thrift writes it, seven bits a byte."""
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])
