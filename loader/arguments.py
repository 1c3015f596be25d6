"""What the constructor's arguments mean, apart from columns."""

from __future__ import annotations

from typing import Any

from loader.errors import LoaderError
from loader.files import Source
from loader.plan import Share
from loader.workers import current_worker


def check_choices(engine: Any, on_bad_files: Any) -> None:
    """Refuse formats and policies that do not exist.

    Raises:
        LoaderError: naming the argument, what it takes and what it got.
    """
    choices = {
        "engine": (engine, (None, "parquet")),
        "on_bad_files": (on_bad_files, ("raise", "skip")),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            listed = " or ".join(repr(choice) for choice in known)
            raise LoaderError(f"Expected {name} as {listed}. Received: {value!r}.")


def check_counts(**counts: Any) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        LoaderError: naming the argument.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise LoaderError(
                f"Expected {name} as a whole number of at least 1. Received: {value!r}."
            )


def make_share(size: Any, rank: Any, *, unseeded: bool) -> Share:
    """The worker's share of the rows.

    Args:
        size: number of workers. Default: as `tf.distribute` has it, in the scope of a strategy.
        rank: this worker's number.
        unseeded: whether rows are to be shuffled without a given seed.

    Raises:
        LoaderError: one without the other, a rank out of range, or several workers that would
            each draw an order of their own.
    """
    if size is None and rank is None:
        size, rank = current_worker() or (1, 0)
    if not isinstance(size, int) or not isinstance(rank, int) or not 0 <= rank < size:
        raise LoaderError(
            "Expected global_size and global_rank together, with 0 <= global_rank < global_size. "
            f"Received: global_size={size!r}, global_rank={rank!r}."
        )
    if size > 1 and unseeded:
        raise LoaderError(
            "Expected a seed or seed_fn that is the same for all workers, since each of them "
            "takes its share of one common order. Received: neither. Pass seed=0, for example."
        )
    return Share(size, rank)


def rows_in_buffer(
    source: Source, buffer_size: float, batch_size: int, memory: int, copies: int
) -> int:
    """How many rows may be decoded at once; never less than a batch.

    Args:
        source: what is read.
        buffer_size: a fraction of the device's memory below 1, bytes from 1 on.
        batch_size: rows in a batch.
        memory: the device's memory in bytes.
        copies: how many chunks are in it at once, each at its largest.

    Raises:
        LoaderError: a size that is not above 0, or data without rows.
    """
    if isinstance(buffer_size, bool) or not buffer_size > 0:
        raise LoaderError(
            "Expected buffer_size as a fraction of memory below 1, or bytes from 1 on. "
            f"Received: {buffer_size!r}."
        )
    rows = sum(group.rows for group in source.row_groups)
    if not rows:
        raise LoaderError(
            "Expected data with rows. Received: none in any file. Check what wrote them."
        )
    nbytes = buffer_size if buffer_size >= 1 else buffer_size * memory
    row_bytes = max(group.nbytes / group.rows for group in source.row_groups)
    return max(int(nbytes / copies / max(row_bytes, 1)), batch_size)
