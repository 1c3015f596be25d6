"""A place in the data, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loader.errors import LoaderError
from loader.order.epoch_plan import Leg

STATE_FORMAT = 1
_KEYS = ("format", "epoch", "batch", "seed", "workers", "legs", "order")


@dataclass(frozen=True)
class Position:
    """A place between two batches.

    Attributes:
        epoch: number of the epoch, from 0.
        batch: batches that each worker has taken since the last of `legs`.
        seed: seed of the epoch's order; None if it has not been drawn yet.
        legs: parts of the epoch that earlier numbers of workers took.
    """

    epoch: int
    batch: int
    seed: int | None
    legs: tuple[Leg, ...] = ()


@dataclass
class Progress:
    """Position of an iterator.

    Attributes:
        start: where the iterator began; None before that.
        steps: batches of its epoch after the legs of `start`.
        taken: batches since `start`.
    """

    start: Position | None = None
    steps: int = 0
    taken: int = 0

    @property
    def position(self) -> Position | None:
        """The current position; None before the first batch and after the last."""
        if self.start is None or not self.left:
            return None
        return replace(self.start, batch=self.start.batch + self.taken)

    @property
    def left(self) -> int:
        """The number of batches that are left."""
        return self.steps - self.taken - (0 if self.start is None else self.start.batch)


@dataclass(eq=False)
class Pass:
    """One reading of epochs by one iterator.

    Attributes:
        repeats: whether it may read more than one epoch.
    """

    repeats: bool = False


@dataclass
class Trail:
    """Positions after the batches of the next iterator that begins.

    The iterator itself may be ahead, since its consumer may prefetch batches.

    Args:
        tell: returns the state after some batches of epochs that begin at given positions.
    """

    tell: Callable[[Sequence[Position], int], dict[str, Any]]
    begun: list[tuple[Pass, Position]] = field(default_factory=list)

    @property
    def repeats(self) -> bool:
        """Whether the iterator continues after an epoch, as that of `repeat` does."""
        return bool(self.begun) and self.begun[0][0].repeats

    def __call__(self, batches: int) -> dict[str, Any]:
        """The state after `batches` batches."""
        # Other iterators may read the same data in between, for example to evaluate.
        return self.tell([each for by, each in self.begun if by is self.begun[0][0]], batches)


def write_state(position: Position, workers: int, order: int) -> dict[str, Any]:
    """The JSON-able form of a position.

    Args:
        position: where to resume.
        workers: how many workers share the data.
        order: a number that differs when the same position would refer to other rows.
    """
    legs = [[leg.workers, leg.batches] for leg in position.legs]
    values = (STATE_FORMAT, position.epoch, position.batch, position.seed, workers, legs, order)
    return dict(zip(_KEYS, values, strict=True))


def read_state(
    state: Mapping[str, Any], workers: int, order: int, steps: Callable[[Position, int], int]
) -> Position:
    """The position that `write_state` wrote, for another number of workers if need be.

    Args:
        state: the result of `write_state`.
        workers: how many workers share the data now.
        order: as for `write_state`. It matters only in the middle of an epoch.
        steps: how many batches each of some workers takes after the last leg of a position.

    Raises:
        LoaderError: a state of another shape, or of other data or settings.
    """
    position, writers = _parse(state)
    if not position.batch and not position.legs:
        return position
    if state["order"] != order or position.batch >= steps(position, writers):
        raise LoaderError(
            "Expected a state of the same data and settings: files, row groups, batch_size, "
            "shuffle, parts_per_chunk, buffer_size, device and version of Polars or cuDF. "
            f"Received: {state!r}, of another order of rows. "
            "Restart the epoch by setting its batch to 0 and its legs to []."
        )
    if writers == workers or not position.batch:
        return position
    return replace(position, batch=0, legs=(*position.legs, Leg(writers, position.batch)))


def _parse(state: Mapping[str, Any]) -> tuple[Position, int]:
    if not isinstance(state, Mapping) or set(state) != set(_KEYS):
        raise LoaderError(
            f"Expected a state of get_state() with the keys {', '.join(_KEYS)}. "
            f"Received: {state!r}."
        )
    if state["format"] != STATE_FORMAT:
        raise LoaderError(f"Expected a state of format {STATE_FORMAT}. Received: {state!r}.")
    legs = state["legs"]
    pairs = isinstance(legs, list) and all(isinstance(leg, list) and len(leg) == 2 for leg in legs)
    counts = [count for leg in legs for count in leg] if pairs else [None]
    seeds = [] if state["seed"] is None else [state["seed"]]
    if not all(_is_count(number, 0) for number in (state["epoch"], state["batch"], *seeds)) or (
        not all(_is_count(number, 1) for number in (state["workers"], *counts))
    ):
        raise LoaderError(
            "Expected epoch, batch, seed and workers as whole numbers and legs as pairs of them. "
            f"Received: {state!r}."
        )
    legs = tuple(Leg(*leg) for leg in legs)
    return Position(state["epoch"], state["batch"], state["seed"], legs), state["workers"]


def _is_count(number: object, least: int) -> bool:
    return type(number) is int and number >= least
