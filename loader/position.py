"""A place in the data, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loader.errors import LoaderError

STATE_FORMAT = 1
_KEYS = ("format", "epoch", "batch", "seed", "order")


@dataclass(frozen=True)
class Position:
    """A place between two batches. `seed` is None where the epoch has not drawn one yet."""

    epoch: int
    batch: int
    seed: int | None


@dataclass
class Progress:
    """Where an iterator is now; None when it has not begun, or has given its last batch."""

    position: Position | None = None


def write_state(position: Position, order: int) -> dict[str, Any]:
    """The JSON-able form of a position.

    Args:
        position: where to go on.
        order: a number that differs when the same position would mean other rows.
    """
    numbers = (STATE_FORMAT, position.epoch, position.batch, position.seed, order)
    return dict(zip(_KEYS, numbers, strict=True))


def read_state(state: Mapping[str, Any], order: int, steps: int) -> Position:
    """The position that `write_state` wrote.

    Args:
        state: what was written.
        order: as for `write_state`. It matters only in the midst of an epoch.
        steps: batches in an epoch.

    Raises:
        LoaderError: a state of another shape, or of other data or settings.
    """
    if not isinstance(state, Mapping) or set(state) != set(_KEYS):
        raise LoaderError(
            f"Expected a state of get_state() with the keys {', '.join(_KEYS)}. "
            f"Received: {state!r}."
        )
    if state["format"] != STATE_FORMAT:
        raise LoaderError(f"Expected a state of format {STATE_FORMAT}. Received: {state!r}.")
    position = Position(state["epoch"], state["batch"], state["seed"])
    numbers = (position.epoch, position.batch, 0 if position.seed is None else position.seed)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise LoaderError(f"Expected epoch, batch and seed as whole numbers. Received: {state!r}.")
    if position.batch and (state["order"] != order or position.batch >= steps):
        raise LoaderError(
            "Expected a state of the same data and settings: files, row groups, batch_size, "
            "shuffle, parts_per_chunk, buffer_size, global_size, global_rank and Polars version. "
            f"Received: {state!r}, of another order of rows. "
            "Start the epoch anew, by setting its batch to 0."
        )
    return position
