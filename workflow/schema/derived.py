"""Values that are derived from an object once, and kept with it.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

Made = TypeVar("Made")


class Derives:
    """An object that never changes, and that keeps what was derived from it for as long as it lives.

    Copies and pickles of it are without: they derive it anew.

    Example:
        >>> class Keys(Derives):
        ...     pass
        >>> keys = Keys()
        >>> keys.derived("table", lambda: {7: 0}) is keys.derived("table", lambda: {7: 0})
        True
    """

    def derived(self, name: Hashable, derive: Callable[[], Made]) -> Made:
        """The result of `derive`, which is called once for each name, whatever threads ask.

        Args:
            name: of the result.
            derive: makes it; it must not keep this object alive in its result.
        """
        kept: _Once = self.__dict__.setdefault("_derived", {}).setdefault(name, _Once())
        with kept.lock:
            if not kept.made:
                kept.made = (derive(),)
        made: Made = kept.made[0]
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without what was derived of them."""
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}


class _Once:
    """A result, once it is made, and the lock that the thread that makes it holds."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: tuple[Any, ...] = ()
