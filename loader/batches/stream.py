"""Epochs as an iterator over batches of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from loader.batches.batches import Array, Block
from loader.batches.prefetch import Prefetcher
from loader.order.position import Progress


class Stream(Iterator[Sequence[Array]]):
    """The batches of an epoch or more, as flat lists of arrays in the order of the layout.

    Not for several threads at once. Dropping it ends its reader thread.

    Args:
        begin: takes an epoch and starts its reader; called when its first batch is asked for.
        batch_size: rows in a batch.
        end: called after an epoch's last batch.
        epochs: how many there are, one after another; None for no end of them.
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

    @property
    def begun(self) -> bool:
        """Whether a batch was asked for."""
        return self._blocks is not None

    def __next__(self) -> Sequence[Array]:
        if self._done:
            raise StopIteration
        if self._blocks is None:
            self._progress, self._blocks = self._begin()
        batch = next(self._batches, None)
        while batch is None:
            # The last step ends the epoch: before it there is always a block.
            self._batches = next(self._blocks).batches(self._batch_size)
            batch = next(self._batches, None)
        self._progress.taken += 1
        if not self._progress.left:  # Keras never asks for more than there are
            self._end_epoch()
        return batch

    def _end_epoch(self) -> None:
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
