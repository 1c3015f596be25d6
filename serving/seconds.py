"""Limits of time."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

# gRPC takes a limit of more than some centuries, such as infinity, for one that has passed.
_LONGEST = 1e9


def expect_seconds(name: str, seconds: Any, error: Callable[[str], Exception]) -> float:
    """Check a limit of time.

    Args:
        name: the argument, for the message.
        seconds: the limit.
        error: makes the error from its text.

    Returns:
        The limit.

    Raises:
        Exception: it is not a number above 0 and up to 1e9; the one that `error` makes.

    Example:
        >>> expect_seconds("timeout", float("inf"), ValueError)
        Traceback (most recent call last):
            ...
        ValueError: Expected timeout as seconds above 0 and up to 1e9. Received: inf.
    """
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, Real)
        or not 0 < float(seconds) <= _LONGEST
    ):
        raise error(f"Expected {name} as seconds above 0 and up to 1e9. Received: {seconds!r}.")
    return float(seconds)
