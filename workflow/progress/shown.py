"""The places of a progress line: a terminal, a notebook, or the log."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from workflow.picture.diagram import cut, printable

from .line import Count, text_of

# Work that ends before is not shown.
SECONDS_BEFORE = 1.0
SECONDS_IN_A_TERMINAL = 0.2
SECONDS_IN_A_NOTEBOOK = 1.0
SECONDS_IN_THE_LOG = 10.0
LOG = logging.getLogger("workflow.progress")

# Two lines cannot move in one terminal: another thread's work is not shown meanwhile.
_SCREEN = threading.Lock()


class Display(Protocol):
    """A place for the line.

    Attributes:
        before: seconds until the line is first shown.
        between: seconds between two updates.
    """

    before: float
    between: float

    def update(self, chain: Sequence[Count]) -> None:
        """Show the current numbers."""

    def end(self, chain: Sequence[Count]) -> None:
        """Tidy up."""


class Terminal:
    """A line that is written over itself, and erased at the end; the cursor stays visible."""

    def __init__(self) -> None:
        self.before, self.between = SECONDS_BEFORE, SECONDS_IN_A_TERMINAL

    def update(self, chain: Sequence[Count]) -> None:
        """Write the line, cut to the terminal's width, in which it would be wrapped."""
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        self._write(cut(printable(text_of(chain, bar=True)), max(width - 1, 1)))

    def end(self, chain: Sequence[Count]) -> None:  # noqa: ARG002
        """Erase the line."""
        self._write("")

    def _write(self, text: str) -> None:
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write("\r\x1b[2K" + text.encode(encoding, "replace").decode(encoding))
        sys.stderr.flush()


class Notebook:
    """One output of the cell, which is replaced; the last text stays."""

    def __init__(self) -> None:
        self.before, self.between = SECONDS_BEFORE, SECONDS_IN_A_NOTEBOOK
        self._handle: Any = None

    def update(self, chain: Sequence[Count]) -> None:
        """Make the output, or replace its text."""
        display = sys.modules["IPython"].display
        data = {"text/plain": text_of(chain, bar=True)}
        if self._handle is None:
            self._handle = display.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self, chain: Sequence[Count]) -> None:
        """Leave the last numbers."""
        self.update(chain)


class Log:
    """Lines of the logger `workflow.progress`, of the level INFO."""

    def __init__(self) -> None:
        self.before = self.between = SECONDS_IN_THE_LOG

    def update(self, chain: Sequence[Count]) -> None:
        """Log a line."""
        LOG.info("%s", text_of(chain))

    def end(self, chain: Sequence[Count]) -> None:
        """Nothing remains to be tidied."""


def show_until(ended: threading.Event, chain: Callable[[], Sequence[Count]]) -> None:
    """Show a line until an event, if that is long enough in coming.

    Args:
        ended: the work has ended.
        chain: the stages that are under way, the innermost last.
    """
    display = _display()
    if ended.wait(display.before) or not _SCREEN.acquire(blocking=False):
        return
    try:
        display.update(chain())
        while not ended.wait(display.between):
            display.update(chain())
        display.end(chain())
    except (OSError, ValueError):
        # Standard error was closed; the work continues.
        return
    finally:
        _SCREEN.release()


def _display() -> Display:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return Notebook()
    return Terminal() if is_terminal() else Log()


def is_terminal() -> bool:
    """Whether standard error is a terminal in which a line can be replaced."""
    try:
        return os.isatty(sys.stderr.fileno()) and os.environ.get("TERM") != "dumb"
    except (OSError, ValueError, AttributeError):  # none, closed, or another object in its place
        return False
