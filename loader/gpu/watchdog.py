"""Reads on a GPU that may never end, and who waits for them.

A damaged page can keep cuDF's decompression busy for ever (seen with zstd), and nothing can
interrupt a kernel. Who waits for the reader has to be told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from loader.errors import LoaderError
from loader.gpu.cuda import LOST, where
from loader.order.plan import Piece
from loader.read.damaged import PieceReader

T = TypeVar("T")

# Seconds between two looks at the GPU.
_LOOK = 0.1


class WatchedReader(Generic[T]):
    """Reads as another reader does, and lets nobody wait for ever for what hangs.

    A read may take as long as it needs for its bytes, from a network for example: meanwhile its
    CUDA stream has nothing to do. Only a stream that was at work whenever it was looked at, for
    longer than the limit and for one and the same read, counts as hanging.

    Args:
        reader: what reads.
        is_busy: whether its CUDA stream has work left; it must not wait.
        limit: seconds of unbroken work; None for no limit.
        give_up: called when it hangs.
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
        """Read pieces."""
        thread = threading.get_ident()
        self._under_way[thread] = pieces
        try:
            return self._reader.read(pieces)
        finally:
            del self._under_way[thread]

    def wait(self, done: Callable[[float | None], bool]) -> None:
        """Wait, as `loader.batches.prefetch.Wait` says, for a thread that reads.

        Raises:
            LoaderError: the GPU does not come to an end; with files and row groups.
        """
        if self._limit is None:
            done(None)
            return
        looks, last = 0, None  # not a clock, which goes on where the process is suspended
        while not done(_LOOK):
            # All of a loader's reads are on one stream, where the oldest holds the others up.
            oldest, *_ = *self._under_way.values(), None
            looks = looks + 1 if oldest is last and self._is_busy() else 0
            last = oldest
            if oldest is not None and looks * _LOOK > self._limit:
                self._give_up()
                raise LoaderError(
                    f"Expected the GPU to decode {where(oldest)} within {self._limit:g} s "
                    "(decode_timeout). Received: a GPU that was at work on it all the time and "
                    f"does not come to an end; a damaged page can keep it so. {LOST}"
                )
