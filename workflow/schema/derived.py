"""Values that are derived from an object once, and stored with it.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

Made = TypeVar("Made")


class Derives:
    """Base of immutable objects that store the values derived from them for as long as they live.

    Copies and pickles exclude these values, and derive them again.

    Example:
        >>> class Keys(Derives):
        ...     pass
        >>> keys = Keys()
        >>> keys.derived("table", lambda: {7: 0}) is keys.derived("table", lambda: {7: 0})
        True
    """

    def derived(self, name: Hashable, derive: Callable[[], Made]) -> Made:
        """The result of `derive`, which is called once for each name, even from several threads.

        Args:
            name: name of the result.
            derive: computes the result, which must not refer to this object.
        """
        kept: _Once = self.__dict__.setdefault("_derived", {}).setdefault(name, _Once())
        with kept.lock:
            if not kept.made:
                kept.made = (derive(),)
        made: Made = kept.made[0]
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without derived values."""
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}


class _Once:
    """A result, once it exists, and a lock for the thread that computes it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: tuple[Any, ...] = ()
