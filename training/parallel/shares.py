"""A comparison of the loaders that workers train on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from loader.epochs import Epochs
from training.parallel.agreement import agree
from training.parallel.workers import Workers

_LARGEST = 1 << 63  # beyond the numbers that travel


def expect_shares(workers: Workers, read: tuple[Epochs, int] | None) -> None:
    """Compare the loaders of all workers, which call this function too.

    Args:
        workers: all workers.
        read: this worker's epochs and number of batches; None for other data than a loader.

    Raises:
        TrainingError: a loader has not its worker's share of the rows, has other settings or data than
            those of other workers, or all rows, as another one.
    """
    if read is None:
        agree(workers, {"kind of data": "other data than a loader"})
        return
    epochs, steps = read
    settings = {
        "kind of data": "a loader",
        "batch_size": epochs.settings.batch_size,
        "number of steps in an epoch": steps,
    }
    if epochs.settings.share.size == 1:
        # Less than an epoch may be rows of its own: take and skip choose them.
        is_whole = steps >= epochs.steps or steps == tf.data.INFINITE_CARDINALITY
        agree(workers, settings, own_data=epochs.digest() if is_whole else "")
        return
    agree(workers, settings | _order(epochs), _other_share(workers, epochs))


def order_shared(epochs: Epochs) -> tuple[int, int]:
    """The number and the seed of the next epoch, if its rows are shared out; else zeros."""
    if epochs.settings.share.size == 1:
        return 0, 0
    return epochs.next_position().epoch, (_seed(epochs) or 0) % _LARGEST


def _order(epochs: Epochs) -> dict[str, Any]:
    order = "order of rows, by the loader's row groups, shuffle, parts_per_chunk and buffer_size"
    epoch = "epoch of the loader, which all that reads it but peek() counts"
    return {
        order: epochs.order,
        "seed of the loader": _seed(epochs),
        epoch: epochs.next_position().epoch,
        "data of the loader": epochs.digest(),
    }


def _seed(epochs: Epochs) -> int | None:
    """The seed of the next epoch; None where rows come in order, whatever it is."""
    return epochs.next_position().seed if epochs.settings.shuffle else None


def _other_share(workers: Workers, epochs: Epochs) -> str:
    """The error where a loader has not its worker's share of the rows; "" where it has."""
    share, expected = epochs.settings.share, (workers.size, workers.rank)
    if (share.size, share.rank) == expected:
        return ""
    return (
        f"Expected global_size={expected[0]} and global_rank={expected[1]} of the loader on "
        f"{workers.name(workers.rank)}, as of the worker, so that every row is trained on once. "
        f"Received: global_size={share.size} and global_rank={share.rank}."
    )
