"""One epoch as an iterator over batches of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loader.batches import Array, Block
from loader.position import Position, Progress
from loader.prefetch import Prefetcher


class Stream(Iterator[list[Array]]):
    """The batches of one epoch, as flat lists of arrays in the order of the layout.

    Not for several threads at once. Dropping it ends its reader thread.

    Args:
        begin: takes an epoch and starts its reader; called when the first batch is asked for.
        steps: batches in a whole epoch.
        batch_size: rows in a batch.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[Progress, Prefetcher[Block]]],
        steps: int,
        batch_size: int,
    ) -> None:
        self._begin = begin
        self._steps = steps
        self._batch_size = batch_size
        self._progress = Progress()
        self._blocks: Prefetcher[Block] | None = None
        self._batches: Iterator[list[Array]] = iter(())
        self._done = False

    @property
    def begun(self) -> bool:
        """Whether a batch was asked for."""
        return self._blocks is not None

    def __next__(self) -> list[Array]:
        if self._done:
            raise StopIteration
        if self._blocks is None:
            self._progress, self._blocks = self._begin()
        batch = next(self._batches, None)
        while batch is None:
            # Each epoch has a step at least, and the last one ends it: there is a block.
            self._batches = next(self._blocks).batches(self._batch_size)
            batch = next(self._batches, None)
        self._advance()
        return batch

    def _advance(self) -> None:
        """Count a batch. Keras never asks for more than there are, so the last one ends it."""
        position = self._progress.position
        if position is None or position.batch + 1 >= self._steps:
            self._progress.position = None
            self.close()
        else:
            self._progress.position = Position(position.epoch, position.batch + 1, position.seed)

    def close(self) -> None:
        """End the reader thread and drop what it has read."""
        self._done = True
        self._batches = iter(())
        if self._blocks is not None:
            self._blocks.close()
