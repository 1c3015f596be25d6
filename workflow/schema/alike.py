"""The name that a user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Searches among more names take longer than a reader waits for an error.
_MOST = 5000


def did_you_mean(wanted: Iterable[object], known: Iterable[object]) -> str:
    """A question for an error about unknown names; empty if no known name resembles one of them.

    Args:
        wanted: the unknown names.
        known: the names that exist.

    Returns:
        The question with a space before it.

    Example:
        >>> did_you_mean(["userid", "price"], ["userId", "movieId"])
        " Did you mean 'userId'?"
        >>> did_you_mean(["x"], ["userId"])
        ''
    """
    lower: dict[str, str] = {}
    for name in known:
        lower.setdefault(str(name).casefold(), str(name))
        if len(lower) == _MOST:
            break
    found = []
    for name in wanted:
        if isinstance(name, str):
            found += difflib.get_close_matches(name.casefold(), lower, n=1, cutoff=0.7)
        if len(found) == 3:
            break
    names = " and ".join(repr(lower[name]) for name in dict.fromkeys(found))
    return f" Did you mean {names}?" if names else ""
