"""Reads on a GPU that may never end, and the wait for them.

A damaged page can keep cuDF's decompression busy forever (seen with zstd), and nothing can
interrupt a kernel. So the thread that waits for the reader raises an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from loader.errors import LoaderError
from loader.gpu.cuda import LOST, where
from loader.order.epoch_plan import Piece
from loader.read.damaged import PieceReader

T = TypeVar("T")

# Seconds between two checks of the GPU.
_LOOK = 0.1


class WatchedReader(Generic[T]):
    """Another reader; a wait for a read of it that hangs raises an error.

    A read may take as long as its bytes need to arrive, for example from a network: meanwhile its
    CUDA stream is idle. A stream counts as hanging only if it was busy at every check, for longer
    than the limit, during one and the same read.

    Args:
        reader: the reader that is watched.
        is_busy: whether its CUDA stream has work left; must not wait.
        limit: seconds of uninterrupted work; None for no limit.
        give_up: called when a read hangs.
    """

    def __init__(
        self,
        reader: PieceReader[T],
        is_busy: Callable[[], bool],
        limit: float | None,
        give_up: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._is_busy = is_busy
        self._limit = limit
        self._give_up = give_up
        self._under_way: dict[int, Sequence[Piece]] = {}  # by thread, the oldest first

    def read(self, pieces: Sequence[Piece]) -> T:
        """Read pieces, recorded as under way."""
        thread = threading.get_ident()
        self._under_way[thread] = pieces
        try:
            return self._reader.read(pieces)
        finally:
            del self._under_way[thread]

    def wait(self, done: Callable[[float | None], bool]) -> None:
        """Wait for a thread that reads; a `loader.batches.prefetch.Wait`.

        Raises:
            LoaderError: the GPU does not finish; names files and row groups.
        """
        if self._limit is None:
            done(None)
            return
        looks, last = 0, None  # not a clock, which runs on while the process is suspended
        while not done(_LOOK):
            # All of a loader's reads share one stream, where the oldest blocks the others.
            oldest, *_ = *self._under_way.values(), None
            looks = looks + 1 if oldest is last and self._is_busy() else 0
            last = oldest
            if oldest is not None and looks * _LOOK > self._limit:
                self._give_up()
                raise LoaderError(
                    f"Expected the GPU to decode {where(oldest)} within {self._limit:g} s "
                    "(decode_timeout). Received: a GPU that was busy with it all the time and does "
                    f"not finish; a damaged page can cause this. {LOST}"
                )
