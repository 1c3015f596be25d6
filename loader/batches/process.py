"""Checks for forked processes: threads are not forked, so waiting for one would never end."""

from __future__ import annotations

import os
import threading

import polars as pl

from loader.errors import LoaderError

_IMPORTED_IN = os.getpid()
# Seconds for reading one number, which takes a few milliseconds where Polars works.
PATIENCE = 10.0
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

    Polars has no function that reports this, so a forked process reads one number as files are
    read.

    Raises:
        LoaderError: reading did not end.
    """
    if os.getpid() == _IMPORTED_IN:
        return
    answered = threading.Event()

    def ask() -> None:
        pl.collect_all([pl.LazyFrame({"one": [1]})])
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    if not answered.wait(PATIENCE):
        raise LoaderError(
            f"Expected a process in which Polars works. Received: process {os.getpid()}, a fork of "
            f"process {_IMPORTED_IN}, which had begun to use Polars. {_ADVICE}"
        )
