"""Muting the loggers of other packages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(name: str, level: int) -> Iterator[None]:
    """Mute a logger's messages below a level, for as long as the scope is open.

    Example:
        >>> with quiet("absl", logging.ERROR):
        ...     logging.getLogger("absl").warning("nobody hears this")
    """
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
