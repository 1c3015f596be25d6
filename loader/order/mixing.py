"""Mixing: the rows of several chunks in each batch.

Each chunk's rows are shuffled, and a batch takes a run of rows from each of several chunks: from at least
`width` of them, in proportion to their rows. The chunks of a batch are a window that slides over the
epoch. The first `width` chunks begin together; then one chunk begins and one ends at a time, so that no
batch is the last of all its chunks; and the last `width` chunks end together. If there are fewer than
2 x `width` chunks, each batch draws from all of them.

All of this is arithmetic on numbers of rows. So a position in an epoch is a number of batches, and the
rows that are left after it are runs as well.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loader.order.epoch_plan import Chunk, Piece

# The number of this way of mixing, for positions: another way deals other batches.
ORDER = 2
# The fewest rows of a chunk: smaller row groups are shuffled together.
_LEAST_ROWS = 16_384
# The fewest rows of the chunks in a batch, which costs less than a tenth of a second at the start.
_WINDOW_ROWS = 262_144
# The fewest chunks in a batch, for whose sake a row group is read in more than `Room.most_parts`.
_FEWEST_CHUNKS = 4


@dataclass(frozen=True)
class Mixing:
    """The way in which an epoch is mixed.

    Attributes:
        pieces: the number of pieces in a chunk.
        least_rows: the rows up to which a chunk takes more pieces than that.
        width: the number of chunks that begin together; the fewest in a batch.
        room: the number of chunks that the buffer holds, of up to three windows.
        sliced: whether a large chunk may come in slices, each shuffled by itself, which is faster.
    """

    pieces: int
    least_rows: int
    width: int
    room: int
    sliced: bool = True

    def width_of(self, chunks: int) -> int:
        """The width for a number of chunks, so that those that are open at once fit the buffer."""
        width = self.width
        while width > 1 and _most_open(width, chunks) > self.room:
            width -= 1
        return width


def _most_open(width: int, count: int) -> int:
    """The most chunks that are open at once, of `count` in all.

    While one window begins, the one before it ends; of fewer than three windows all may be open.
    """
    return 2 * width if count >= 3 * width else count


def most_chunk_rows(in_chunk: int, largest: int, least: int, max_rows: int) -> int:
    """The most rows of a chunk: one that lacks a row to be large enough takes a whole piece.

    Args:
        in_chunk: the number of pieces in a chunk.
        largest: the rows of the largest piece.
        least: the rows up to which a chunk takes more pieces.
        max_rows: the most rows that are decoded at once.
    """
    return min(max(in_chunk * largest, least + largest), max_rows)


@dataclass(frozen=True)
class Room:
    """The demands of a shuffled epoch, and the memory for it.

    Attributes:
        max_rows: the most rows that are decoded at once.
        copies: how many times the buffer holds as many rows.
        row_groups: the wanted number of row groups in a batch.
        batch_size: rows in a batch.
        most_parts: see `BlockSource`.
    """

    max_rows: int
    copies: int
    row_groups: int
    batch_size: int
    most_parts: int | None = None

    def chunks(self, rows: int) -> int:
        """The number of chunks of so many rows that the buffer holds, beside those being read and dealt."""
        return self.copies * (self.max_rows - max(rows, self.batch_size)) // rows

    def holds(self, width: int, rows: int, count: int) -> bool:
        """Whether there is room for windows of `width` chunks of so many rows, of `count` chunks in all."""
        return self.chunks(rows) >= _most_open(width, count)

    def piece_rows(self, row_groups: Sequence[int]) -> int:
        """The most rows of a piece: larger row groups leave no room for windows of them.

        Args:
            row_groups: the rows of each row group.
        """
        whole = most_chunk_rows(1, max(row_groups), _LEAST_ROWS, self.max_rows)
        if not self._chunk_rows or self.holds(self.row_groups, whole, len(row_groups)):
            return self.max_rows
        rows = self._chunk_rows
        if self.most_parts is not None:
            fewer_parts = -(-max(row_groups) // self.most_parts) + self.least_rows
            rows = max(rows, min(fewer_parts, self._rows_of(2 * _FEWEST_CHUNKS)))
        return rows - self.least_rows

    @property
    def least_rows(self) -> int:
        """The rows up to which a chunk takes more pieces."""
        return min(_LEAST_ROWS, self._chunk_rows // 2 or self.max_rows)

    @property
    def _chunk_rows(self) -> int:
        """The rows of a chunk of which the buffer holds three windows, since fewer may all be open.

        At least some thousand, since reading a few rows takes as long as a page of each column; 0 if
        the buffer does not hold two windows of two such chunks.
        """
        rows = max(_LEAST_ROWS // 2, self._rows_of(3 * self.row_groups))
        return rows if self.chunks(rows) >= 2 * 2 else 0

    def _rows_of(self, chunks: int) -> int:
        """The most rows of a chunk of which the buffer holds so many."""
        copies = self.copies
        return min(
            copies * self.max_rows // (copies + chunks),
            copies * (self.max_rows - self.batch_size) // chunks,
        )


def plan_mixing(pieces: Sequence[Piece], room: Room, pieces_per_chunk: int) -> Mixing:
    """The mixing of an epoch, as far as the buffer allows.

    Args:
        pieces: all pieces of the data.
        room: what is wanted, and what there is room for.
        pieces_per_chunk: the most pieces in a chunk.
    """
    largest, total = max(piece.rows for piece in pieces), sum(piece.rows for piece in pieces)
    least = room.least_rows

    def plan_of(in_chunk: int) -> tuple[int, int, int, int]:
        rows = most_chunk_rows(in_chunk, largest, least, room.max_rows)
        count = min(-(-len(pieces) // in_chunk), total // least + 1)
        return -(-room.row_groups // in_chunk), rows, count, in_chunk

    plans = map(plan_of, range(pieces_per_chunk, 0, -1))
    fewest, rows, count, in_chunk = next((p for p in plans if room.holds(*p[:3])), plan_of(1))
    wanted = max(fewest, _WINDOW_ROWS // max(in_chunk * largest, least))
    if total <= 2 * _WINDOW_ROWS:  # mixed as a whole
        wanted = max(wanted, len(pieces) // 2 + 1)
    fit = room.chunks(rows)
    fitting = [w for w in (fewest, wanted) if room.holds(w, rows, count)]
    width = max(1, min(fit // 2, wanted), *fitting)
    # More room changes nothing, and positions would be refused on a machine with other memory.
    room_used = min(fit, 3 * width)
    # Slices of few chunks would be few places of the data; small data is mixed as a whole.
    sliced = total > 2 * _WINDOW_ROWS and count >= room.row_groups
    return Mixing(in_chunk, least, width, room_used, sliced)


@dataclass(frozen=True)
class Run:
    """Consecutive rows of a chunk, in the chunk's order: from `start` to before `stop`."""

    chunk: int
    start: int
    stop: int


@dataclass(frozen=True)
class Mixed:
    """A batch, and the chunks that have begun by then: those with a number below `begun`."""

    runs: tuple[Run, ...]
    begun: int


def mixed_batches(rows: Sequence[int], width: int, batch_size: int) -> Iterator[Mixed]:
    """The batches of an epoch; only the last one may be short.

    Args:
        rows: the number of rows of each chunk.
        width: the number of chunks that begin together.
        batch_size: rows in a batch.

    Example:
        >>> [[(r.chunk, r.start, r.stop) for r in b.runs] for b in mixed_batches([4, 2], 2, 3)]
        [[(0, 0, 2), (1, 0, 1)], [(0, 2, 4), (1, 1, 2)]]
    """
    if not rows:
        return
    windows = _windows(len(rows), width)
    starts, quotas = [0] * len(rows), [0] * len(rows)
    last = windows[-1][1]
    # Chunks that are in the current segment, or still have rows of an earlier one.
    open_, next_chunk = list[int](), 0
    phases = map(_phase, itertools.count())
    for segment in range(last + 1):
        while next_chunk < len(rows) and windows[next_chunk][0] <= segment:
            open_.append(next_chunk)
            next_chunk += 1
        for chunk in open_:
            first, end = windows[chunk]
            parts = min(segment, end) - first + 1
            quotas[chunk] = rows[chunk] * parts // (end - first + 1)
        rows_left = sum(quotas[chunk] - starts[chunk] for chunk in open_)
        while rows_left >= batch_size or (segment == last and rows_left):
            ended = [windows[chunk][1] < segment for chunk in open_]
            runs = _deal(open_, ended, quotas, starts, min(batch_size, rows_left), next(phases))
            yield Mixed(tuple(runs), next_chunk)
            rows_left -= min(batch_size, rows_left)
        open_ = [chunk for chunk in open_ if starts[chunk] < rows[chunk]]


def _windows(count: int, width: int) -> list[tuple[int, int]]:
    """The first and the last segment of each chunk. A segment begins where a chunk begins."""
    if count < 2 * width:
        return [(0, 0)] * count
    ends = (min(max(chunk, width - 1), count - width) for chunk in range(count))
    return [(end - width + 1, end) for end in ends]


def _deal(
    chunks: Sequence[int],
    ended: Sequence[bool],
    quotas: Sequence[int],
    starts: list[int],
    rows: int,
    phase: int,
) -> Iterator[Run]:
    """Take the last rows of ended chunks, and others in proportion to the rows that each has left."""
    counts = [quotas[chunk] - starts[chunk] for chunk in chunks]
    last = [count if is_last else 0 for count, is_last in zip(counts, ended, strict=True)]
    surplus = [count - due for count, due in zip(counts, last, strict=True)]
    shares = _shares(surplus, rows - sum(last), phase)
    for chunk, due, more in zip(chunks, last, shares, strict=True):
        if share := due + more:
            yield Run(chunk, starts[chunk], starts[chunk] + share)
            starts[chunk] += share


def _phase(number: int) -> int:
    """Multiples of the golden ratio modulo 1, in units of 2^-32: any few in a row are spread evenly."""
    return number * 0x9E3779B9 % 2**32


def _shares(weights: Sequence[int], rows: int, phase: int) -> list[int]:
    """`rows` in proportion to `weights`, each share rounded down or up.

    Each batch has its own phase, so that every weight gets its share of many batches, also where that
    is less than a row of each. Rounded by the largest remainder, the smallest would get none for long.
    """
    total = max(sum(weights), 1)
    offset = total * phase >> 32
    cuts = [
        (rows * before + offset) // total for before in itertools.accumulate(weights, initial=0)
    ]
    return [end - begin for begin, end in itertools.pairwise(cuts)]


def left_after(
    chunks: Sequence[Chunk], batches: int, *, width: int, batch_size: int
) -> list[Chunk]:
    """The rows of mixed chunks after some batches."""
    rows = [chunk.wanted for chunk in chunks]
    stops = _skip(mixed_batches(rows, width, batch_size), batches)
    return [
        replace(chunk, skip=chunk.skip + stops[number], stop=chunk.skip + chunk.wanted)
        for number, chunk in enumerate(chunks)
        if stops[number] < chunk.wanted
    ]


@dataclass(frozen=True)
class Mixture:
    """An epoch, or the rest of one.

    Attributes:
        chunks: the chunks to read by number, in the order in which they begin.
        batches: the batches.
        sliced: see `Mixing`.
    """

    chunks: Mapping[int, Chunk]
    batches: Iterator[Mixed]
    sliced: bool = True


def mix(
    chunks: Sequence[Chunk], last: Chunk | None, width: int, batch_size: int, skip: int
) -> Mixture:
    """Mix the chunks of one rank.

    Args:
        chunks: the rank's share.
        last: a further chunk of one row, for the end.
        width: the number of chunks that begin together.
        batch_size: rows in a batch.
        skip: the number of batches to leave out.
    """
    rows = [chunk.wanted for chunk in chunks]
    batches = mixed_batches(rows, width, batch_size)
    if last is not None:
        chunks = [*chunks, last]
        batches = _with_last(batches, len(rows), batch_size)
    stops = _skip(batches, skip)
    rest = {n: chunk for n, chunk in enumerate(chunks) if stops[n] < chunk.wanted}
    return Mixture(rest, batches)


def _skip(batches: Iterator[Mixed], count: int) -> Mapping[int, int]:
    """Drop batches; returns the number of rows that they took of each chunk."""
    stops: dict[int, int] = defaultdict(int)
    for batch in itertools.islice(batches, count):
        stops.update({run.chunk: run.stop for run in batch.runs})
    return stops


def _with_last(batches: Iterator[Mixed], number: int, batch_size: int) -> Iterator[Mixed]:
    """Add a chunk of one row at the end."""
    runs: tuple[Run, ...] = ()
    for batch in batches:
        runs = batch.runs
        if sum(run.stop - run.start for run in runs) == batch_size:
            yield batch
            runs = ()
    yield Mixed((*runs, Run(number, 0, 1)), number + 1)


def row_groups_in(batch: Mixed, chunks: Mapping[int, Chunk]) -> int:
    """The number of row groups from which a batch is expected to draw, rounded.

    A run of few rows misses some of the row groups of a chunk that has many.
    """
    missed: dict[tuple[str, int], float] = defaultdict(lambda: 1.0)
    for run in batch.runs:
        chunk = chunks[run.chunk]
        rows = chunk.rows
        for piece in chunk.pieces:
            # Close to drawing without replacement, and equal to it for a single row or all rows.
            few, many = sorted((piece.rows, run.stop - run.start))
            missed[piece.path, piece.row_group] *= (1 - many / rows) ** few
    return round(sum(1 - chance for chance in missed.values()))
