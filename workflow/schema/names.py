"""Names in messages: those that there are, and those that a user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Searches among more names take longer than a reader waits for an error.
_MOST = 5000


def listed(names: Iterable[str], most: int = 30) -> str:
    """Names for a readable message: of very many names the first ones and the last.

    Example:
        >>> listed((f"C{n}" for n in range(1, 40)), most=4)
        'C1, C2, C3, ... C39 (39 in all)'
    """
    texts = [f"{name:.100}" for name in names]
    if len(texts) <= most:
        return ", ".join(texts)
    return f"{', '.join(texts[: most - 1])}, ... {texts[-1]} ({len(texts)} in all)"


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
    names = " and ".join(repr(name) for name in dict.fromkeys(_alike(wanted, known).values()))
    return f" Did you mean {names}?" if names else ""


def rename_advice(missing: Iterable[object], have: Iterable[object]) -> str:
    """Advice for an error about columns that data lacks; empty if no column resembles one of them.

    Returns:
        The advice with a space before it.

    Example:
        >>> rename_advice(["userId", "price"], ["userid", "rating"])
        " If 'userid' is 'userId', rename it."
    """
    alike = [f"{own!r} is {name!r}" for name, own in _alike(missing, have).items()]
    return f" If {' and '.join(alike)}, rename {'them' if alike[1:] else 'it'}." if alike else ""


def _alike(wanted: Iterable[object], known: Iterable[object]) -> dict[str, str]:
    """The known name that resembles each of some names; of three of them at most."""
    lower: dict[str, str] = {}
    for name in known:
        lower.setdefault(str(name).casefold(), str(name))
        if len(lower) == _MOST:
            break
    found: dict[str, str] = {}
    for name in wanted:
        if isinstance(name, str):
            for close in difflib.get_close_matches(name.casefold(), lower, n=1, cutoff=0.7):
                found[name] = lower[close]
        if len(found) == 3:
            break
    return found
