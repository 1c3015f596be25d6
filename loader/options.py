"""Arguments of the constructor, apart from columns."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from loader.errors import LoaderError
from loader.files.parquet_files import ReadableFiles
from loader.order.epoch_plan import Share
from workflow.schema.python_number import whole_number
from workflow.schema.schema import Schema


def check_choices(engine: Any, on_bad_files: Any) -> None:
    """Refuse unknown formats and policies.

    Raises:
        LoaderError: names the argument, its allowed values and the value received.
    """
    choices = {
        "engine": (engine, (None, "parquet")),
        "on_bad_files": (on_bad_files, ("raise", "skip")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            listed = " or ".join(repr(choice) for choice in allowed)
            raise LoaderError(f"Expected {name} as {listed}. Received: {value!r}.")


@dataclass(frozen=True)
class Budget:
    """Budget of a device's memory.

    Attributes:
        memory: its bytes: total, not free, so that the same machine splits row groups the same way.
        copies: how many chunks of decoded rows it holds at once, each at its largest.
        fixed: bytes that the libraries take in addition, whatever the size of a chunk.
        place: bytes of a row's place in a random order.
    """

    memory: int
    copies: int
    fixed: int = 0
    place: int = 0


def check_counts(**counts: Any) -> list[int]:
    """The values as Python integers, none below 1.

    Raises:
        LoaderError: names the argument.
    """
    return [whole_number(name, value, 1, LoaderError) for name, value in counts.items()]


def check_flags(**flags: Any) -> None:
    """Refuse values other than True and False: every text is true, "no" as well.

    Raises:
        LoaderError: names the argument.
    """
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise LoaderError(f"Expected {name} as True or False. Received: {value!r}.")


def check_schema(schema: Any) -> None:
    """Refuse a schema that is none.

    Raises:
        LoaderError: it is of another type.
    """
    if not isinstance(schema, Schema | None):
        raise LoaderError(
            "Expected schema as a Schema, such as workflow.output_schema. "
            f"Received: {schema!r:.200}."
        )


def check_timeout(seconds: Any) -> None:
    """Refuse an invalid limit of time.

    Raises:
        LoaderError: it is not above 0.
    """
    if seconds is not None and not _is_above_0(seconds):
        raise LoaderError(
            "Expected decode_timeout as seconds above 0, or None for no limit. "
            f"Received: {seconds!r}."
        )


def _is_above_0(value: Any) -> bool:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and bool(0 < value < math.inf)


def make_seed(seed: Any, seed_fn: Any) -> int:
    """The seed for the order of rows: the one given, or a new one.

    Raises:
        LoaderError: a seed that is not a whole number, or a `seed_fn` that cannot be called.
    """
    if seed_fn is not None and not callable(seed_fn):
        raise LoaderError(
            f"Expected seed_fn as a function that returns a seed. Received: {seed_fn!r}."
        )
    return secrets.randbits(32) if seed is None else whole_number("seed", seed, 0, LoaderError)


def call_seed_fn(seed_fn: Callable[[], Any]) -> int:
    """An epoch's seed.

    Raises:
        LoaderError: the function returns something other than a whole number of at least 0.
    """
    return whole_number("the result of seed_fn", seed_fn(), 0, LoaderError)


def make_share(
    size: Any, rank: Any, current: Callable[[], tuple[int, int] | None], *, unseeded: bool
) -> Share:
    """The worker's share of the rows.

    Args:
        size: number of workers.
        rank: this worker's number.
        current: the default for both: the number of workers and this one's number, or None for one.
        unseeded: whether rows are to be shuffled without a given seed.

    Raises:
        LoaderError: one argument without the other, a rank out of range, or several workers that
            would each draw their own order.
    """
    if size is None and rank is None:
        size, rank = current() or (1, 0)
    are_whole = isinstance(size, Integral) and isinstance(rank, Integral)
    if not are_whole or not 0 <= rank < size:
        raise LoaderError(
            "Expected global_size and global_rank together, with 0 <= global_rank < global_size. "
            f"Received: global_size={size!r}, global_rank={rank!r}."
        )
    if size > 1 and unseeded:
        raise LoaderError(
            "Expected a seed or seed_fn that is the same for all workers, since each of them "
            "takes its share of one common order. Received: neither. Pass seed=0, for example."
        )
    return Share(int(size), int(rank))


def rows_in_buffer(
    source: ReadableFiles, buffer_size: Any, batch_size: int, budget: Budget, padding: int = 0
) -> int:
    """The number of rows that may be decoded at once; never less than a batch.

    Args:
        source: the row groups that are read.
        buffer_size: a fraction of the device's memory below 1, bytes from 1 on.
        batch_size: rows in a batch.
        budget: the demands on the memory. The fixed part takes at most half of the buffer.
        padding: bytes that the padded lists of a row take.

    Raises:
        LoaderError: a size that is not above 0, or data without rows.
    """
    if not _is_above_0(buffer_size):
        raise LoaderError(
            "Expected buffer_size as a fraction of memory below 1, or as bytes, a finite number from 1 on. "
            f"Received: {buffer_size!r}."
        )
    if not source.row_groups:
        raise LoaderError(
            "Expected data with rows. Received: none in any file. Check what wrote them."
        )
    nbytes = buffer_size if buffer_size >= 1 else buffer_size * budget.memory
    nbytes = max(nbytes - budget.fixed, nbytes / 2)
    sizes = [
        (max(group.nbytes / group.rows + budget.place + padding, 1), group.rows)
        for group in source.row_groups
    ]
    return max(_rows_in(nbytes / budget.copies, sizes), batch_size)


def _rows_in(nbytes: float, sizes: Sequence[tuple[float, int]]) -> int:
    """The number of rows, whichever they are, that take at most `nbytes`.

    The largest rows count by their number: a few long lists in a short row group do not make all others
    as large.

    Args:
        nbytes: the bytes.
        sizes: for each row group the bytes of a row, and its number of rows.

    Example:
        >>> _rows_in(1000, [(1, 5000), (100, 2)])
        802
    """
    count, room = 0, nbytes
    for size, rows in sorted(sizes, reverse=True):
        if size * rows > room:
            return count + int(room / size)
        count, room = count + rows, room - size * rows
    return int(nbytes / (nbytes - room) * count)
