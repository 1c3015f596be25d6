"""Checks for forked processes: threads are not forked, so waiting for one would never end."""

from __future__ import annotations

import os

from loader.errors import LoaderError
from workflow.engine.forks import why_polars_hangs

_ADVICE = (
    "Start processes with multiprocessing.get_context('spawn'), and make the loader in the process "
    "that reads."
)


def expect_process(made_in: int) -> None:
    """Refuse an object made in another process.

    Args:
        made_in: the id of the process that made it.

    Raises:
        LoaderError: this process is a fork of the one that made it.
    """
    if os.getpid() != made_in:
        raise LoaderError(
            f"Expected a loader made in this process, {os.getpid()}. Received: one made in process "
            f"{made_in}, whose threads do not exist in its forks. {_ADVICE}"
        )


def expect_polars() -> None:
    """Refuse a fork of a process in which Polars had started its threads: Polars would hang here.

    Raises:
        LoaderError: it is one.
    """
    if reason := why_polars_hangs():
        raise LoaderError(f"{reason}, and make the loader in the process that reads.")
