"""Processes that were forked. Threads do not come along, so whoever waits for one waits for ever."""

from __future__ import annotations

import os
import threading

import polars as pl

from loader.errors import LoaderError

_IMPORTED_IN = os.getpid()
# Seconds for one number. Where Polars works it takes a few milliseconds.
_PATIENCE = 10.0
_ADVICE = (
    "Start processes with multiprocessing.get_context('spawn'), and make the loader in the process "
    "that reads."
)


def expect_process(made_in: int) -> None:
    """Refuse what another process has made.

    Args:
        made_in: the id of the process that made it.

    Raises:
        LoaderError: this process is a fork of that one.
    """
    if os.getpid() != made_in:
        raise LoaderError(
            f"Expected a loader of this process, {os.getpid()}. Received: one of process {made_in}, "
            f"whose threads did not come along when it was forked. {_ADVICE}"
        )


def expect_polars() -> None:
    """Refuse a fork of a process whose Polars had started its threads: it would hang here.

    Polars does not tell, so a forked process reads one number in the way in which files are read.

    Raises:
        LoaderError: there was no answer.
    """
    if os.getpid() == _IMPORTED_IN:
        return
    answered = threading.Event()

    def ask() -> None:
        pl.collect_all([pl.LazyFrame({"one": [1]})])
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    if not answered.wait(_PATIENCE):
        raise LoaderError(
            f"Expected a process in which Polars works. Received: process {os.getpid()}, a fork of "
            f"process {_IMPORTED_IN}, which had begun to use Polars. {_ADVICE}"
        )
