"""Epochs as an iterator over batches of arrays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence

from loader.batches.batches import Array, Block
from loader.batches.prefetch import Prefetcher
from loader.batches.process import expect_process
from loader.order.position import Progress


class Stream(Iterator[Sequence[Array]]):
    """The batches of an epoch or more, as flat lists of arrays in the order of the layout.

    Threads may share one: each batch goes to one of them. Dropping it tells its reader thread to end.

    Args:
        begin: starts an epoch and its reader; called when the epoch's first batch is requested.
        batch_size: rows in a batch.
        end: called after an epoch's last batch.
        epochs: how many epochs follow one another; None for an endless stream.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[Progress, Prefetcher[Block]]],
        batch_size: int,
        end: Callable[[], None] | None = None,
        epochs: int | None = 1,
    ) -> None:
        self._begin = begin
        self._batch_size = batch_size
        self._end = end
        self._epochs_left = epochs
        self._progress = Progress()
        self._blocks: Prefetcher[Block] | None = None
        self._batches: Iterator[Sequence[Array]] = iter(())
        self._done = False
        self._made_in = os.getpid()
        self._lock = threading.Lock()

    @property
    def begun(self) -> bool:
        """Whether a batch has been requested."""
        return self._blocks is not None

    def __next__(self) -> Sequence[Array]:
        # Before the lock, which may have been held when the process was forked.
        expect_process(self._made_in)
        with self._lock:
            return self._next()

    def _next(self) -> Sequence[Array]:
        if self._done:
            raise StopIteration
        if self._blocks is None:
            self._progress, self._blocks = self._begin()
        batch = next(self._batches, None)
        while batch is None:
            # No StopIteration: the branch below ends an epoch after its last batch, so a block
            # follows.
            self._batches = next(self._blocks).batches(self._batch_size)
            batch = next(self._batches, None)
        self._progress.taken += 1
        if not self._progress.left:  # Keras never requests more batches than an epoch has
            self._end_epoch()
        return batch

    def _end_epoch(self) -> None:
        self._batches = iter(())  # With drop_last the epoch's short batch is left.
        if self._epochs_left is not None:
            self._epochs_left -= 1
        if self._epochs_left == 0:
            self.close()
        elif self._blocks is not None:
            self._blocks.close()
            self._blocks = None
        if self._end is not None:
            self._end()

    def close(self) -> None:
        """End the reader thread and drop what it has read."""
        self._done = True
        self._batches = iter(())
        if self._blocks is not None:
            self._blocks.close()
