"""Objects of a connection that wait for its next call."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Idle(Generic[_Item]):
    """A stack of objects that one process may use. Thread-safe.

    A forked process inherits the objects while its parent continues to use them: two processes that
    write to one socket, or to one region of memory, get each other's answers. So the stack is empty
    in a forked process.

    Args:
        forget: what a forked process does with an inherited object, without effect on the parent.

    Example:
        >>> idle = Idle[str](print)
        >>> idle.append("a connection")
        >>> idle.pop()
        'a connection'
    """

    def __init__(self, forget: Callable[[_Item], object]) -> None:
        self._forget = forget
        self._process, self._items = os.getpid(), deque[_Item]()
        # Taken in a forked process only, so that none is forked while it is held.
        self._forked = Lock()

    def __len__(self) -> int:
        return len(self._own())

    def append(self, item: _Item) -> None:
        """Keep an object for the next call."""
        self._own().append(item)

    def pop(self) -> _Item:
        """Take the object that was kept last.

        Raises:
            IndexError: there is none.
        """
        return self._own().pop()

    def _own(self) -> deque[_Item]:
        if self._process != os.getpid():
            with self._forked:
                if self._process != os.getpid():
                    inherited, self._items = self._items, deque()
                    self._process = os.getpid()
                    while inherited:
                        self._forget(inherited.pop())
        return self._items
