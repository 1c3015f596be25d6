"""Stages of long work: which one runs, and how far it is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

from workflow.errors import WorkflowError

from .line import Count
from .shown import show_until

# Off by these values, whatever the argument.
VARIABLE = "ENSEMBLE_PROGRESS"
_OFF = ("0", "off", "no", "false")

Item = TypeVar("Item")


class Stage(Count):
    """Work that is under way.

    Attributes:
        inside: the stage inside this one that is under way.
    """

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        super().__init__(title, total, unit, time.monotonic())
        self.inside: Stage | None = None
        # Rows that each query of a pass stands for.
        self.rows_of_a_query = 0.0

    def chain(self) -> list[Count]:
        """This stage and those inside, the innermost last."""
        inside = self.inside
        return [self] if inside is None else [self, *inside.chain()]


_CURRENT: ContextVar[Stage | None] = ContextVar("stage", default=None)


@contextmanager
def showing(
    title: str, total: int | None = None, *, unit: str = "rows", progress: bool = True
) -> Iterator[None]:
    """Show a piece of work on standard error, if it takes more than a second.

    A stage inside another one is shown in the line of the outer one, or not, if that is not shown.

    Args:
        title: the work, such as "fit".
        total: how much there is to do, if it is known.
        unit: the unit of `total` and of `advance`.
        progress: whether to show it. The environment variable `ENSEMBLE_PROGRESS=0` hides all.

    Raises:
        WorkflowError: `progress` is no bool.

    Example:
        >>> with showing("copy", total=2):
        ...     for _ in range(2):
        ...         advance(1)
    """
    if not isinstance(progress, bool):
        raise WorkflowError(f"Expected progress as True or False. Received: {progress!r}.")
    outer, stage = _CURRENT.get(), Stage(title, total, unit)
    token = _CURRENT.set(stage)
    try:
        if outer is not None:
            outer.inside = stage
            yield
        elif progress and os.environ.get(VARIABLE, "").lower() not in _OFF:
            with _shown(stage):
                yield
        else:
            yield
    finally:
        _CURRENT.reset(token)
        if outer is not None:
            outer.inside = None


@contextmanager
def _shown(stage: Stage) -> Iterator[None]:
    """Show a stage from a thread, which has ended afterwards and has tidied the terminal."""
    ended = threading.Event()
    # In the caller's context, by which a notebook finds the cell that the line belongs to.
    show = copy_context().run
    thread = threading.Thread(
        target=show, args=(show_until, ended, stage.chain), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def advance(count: float) -> None:
    """Add to what the current stage has done; without a stage it does nothing."""
    stage = _CURRENT.get()
    if stage is not None:
        stage.done += count


def restart(work: str) -> None:
    """Begin another pass of the current stage over the same rows, with a title of its own."""
    stage = _CURRENT.get()
    if stage is not None:
        stage.work, stage.done, stage.started = work, 0, time.monotonic()


def expect_total(total: int | None) -> None:
    """Set how much the current stage has to do; None if that is unknown."""
    stage = _CURRENT.get()
    if stage is not None:
        stage.total = total


def at_work(work: str) -> None:
    """Name what the current stage is doing."""
    stage = _CURRENT.get()
    if stage is not None:
        stage.work = work


def expect_queries(count: int, rows: int) -> None:
    """Divide rows of the current stage among queries that each pass over all of them."""
    stage = _CURRENT.get()
    if stage is not None:
        stage.rows_of_a_query = rows / max(count, 1)


def queried(count: int) -> None:
    """Advance by the rows of some queries, as `expect_queries` has divided them."""
    stage = _CURRENT.get()
    if stage is not None:
        stage.done += count * stage.rows_of_a_query


def counted(items: Iterable[Item]) -> Iterator[Item]:
    """The items, each of which advances the current stage when the next one is taken.

    A slice advances it by its rows, any other item by one.

    Example:
        >>> list(counted("ab"))
        ['a', 'b']
    """
    for item in items:
        yield item
        advance(item.stop - item.start if isinstance(item, slice) else 1)
