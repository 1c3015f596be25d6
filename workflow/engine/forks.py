"""Forked processes: a fork has none of the threads with which Polars computes, and would wait for them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import polars as pl

# Seconds for computing one number, which takes a few milliseconds where Polars works.
PATIENCE = 10.0
# Linux's flag of a process that was forked and has not begun another program since.
_FORKED = 0x40
# The last process in which Polars has answered.
_works_in: list[int] = []


def why_polars_hangs() -> str | None:
    """The error text for a fork of a process in which Polars had started its threads; None in others.

    Polars has no function that reports this, so a forked process computes one number. It does so once.

    Example:
        >>> why_polars_hangs() is None
        True
    """
    process = os.getpid()
    if process in _works_in or not _is_fork():
        return None
    answered = threading.Event()

    def ask() -> None:
        pl.collect_all([pl.LazyFrame({"one": [1]})])
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    if answered.wait(PATIENCE):
        _works_in[:] = [process]
        return None
    return (
        f"Expected a process in which Polars works. Received: process {process}, a fork of one that had "
        "begun to use Polars, whose threads do not exist in its forks. Start processes with "
        "multiprocessing.get_context('spawn')"
    )


def _is_fork() -> bool:
    # The name of the program, in parentheses, may have any characters.
    try:
        facts = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:  # another system than Linux, or a container without /proc
        return False
    return bool(int(facts[6]) & _FORKED)
