"""One background thread that works ahead of its consumer by a bounded amount."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from loader.batches.process import expect_process
from loader.errors import LoaderError

T = TypeVar("T")

# Takes a function that waits for some seconds (None: without a limit) and returns whether the wait is
# over. Calls this function until the wait is over, or raises a `LoaderError` if that will never happen.
Wait = Callable[[Callable[[float | None], bool]], None]


def wait_without_limit(done: Callable[[float | None], bool]) -> None:
    """The `Wait` for a reader that always ends."""
    done(None)


class _Channel(Generic[T]):
    """State shared by reader and consumer. Neither holds the other, so either can be dropped."""

    def __init__(self, ahead: int) -> None:
        self.changed = threading.Condition()
        self.items: list[T] = []
        self.ahead = ahead
        self.wanted = False
        self.error: BaseException | None = None
        self.finished = False
        self.closed = False
        self.hangs = False

    def put(self, item: T) -> bool:
        """Wait for room and add an item; False when the consumer has gone."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.closed or len(self.items) < max(self.ahead, self.wanted)
            )
            if not self.closed:
                self.items.append(item)
                self.changed.notify_all()
            return not self.closed

    def finish(self, error: BaseException | None = None) -> None:
        """Signal the end of the items, with the error that caused it if any."""
        with self.changed:
            self.error = error
            self.finished = True
            self.changed.notify_all()

    def close(self) -> None:
        """Tell the reader to stop, and drop the items it left."""
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


class Prefetcher(Generic[T]):
    """Iterator over the items of `produce`, which runs in a background thread.

    An exception of the producer is raised in the consumer unchanged, after the items that precede
    it. Closing the iterator ends the thread and joins it. Dropping the last reference to it tells
    the thread to end, and waits for nothing: a garbage collection drops it anywhere, even where the
    thread needs a lock that is held there. If `wait` raises because the thread never ends, the
    thread is abandoned as a daemon.

    Args:
        produce: makes the iterator; called and consumed in the thread.
        ahead: how many finished items may wait while the next one is made. With 0, the thread makes
            one item and starts the next when that one is taken.
        wait: how to wait for the thread.
        name: name of the thread.

    Raises:
        LoaderError: raised by `__next__` when `wait` gives up, or in a fork of the process.
            `close` only warns.

    Example:
        >>> with Prefetcher(lambda: iter(range(3))) as numbers:
        ...     list(numbers)
        [0, 1, 2]
    """

    def __init__(
        self,
        produce: Callable[[], Iterator[T]],
        ahead: int = 1,
        wait: Wait = wait_without_limit,
        name: str = "parquet-loader",
    ) -> None:
        self._wait = wait
        self._channel: _Channel[T] = _Channel(ahead)
        self.reader = Reader(produce, self._channel, wait, name)
        weakref.finalize(self, self.reader.tell).atexit = False
        self.reader.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        expect_process(self.reader.made_in)
        channel = self._channel
        with channel.changed:
            self._wait_for_item(channel)
            if channel.items:
                item = channel.items.pop(0)
                channel.changed.notify_all()
                return item
            if channel.error is not None and not channel.closed:
                raise channel.error
        raise StopIteration

    def _wait_for_item(self, channel: _Channel[T]) -> None:
        def ready() -> bool:
            return bool(channel.items) or channel.finished or channel.closed

        channel.wanted = True
        channel.changed.notify_all()
        try:
            self._wait(lambda seconds: channel.changed.wait_for(ready, seconds))
        except LoaderError:
            channel.hangs = True
            raise
        finally:
            channel.wanted = False

    def close(self) -> None:
        """End the thread and join it. Can be called repeatedly."""
        self.reader.end()

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader:
    """The thread of a prefetcher, which it does not hold.

    Attributes:
        made_in: the process that has the thread; a fork has none.
    """

    def __init__(
        self, produce: Callable[[], Iterator[Any]], channel: _Channel[Any], wait: Wait, name: str
    ) -> None:
        self._channel = channel
        self._wait = wait
        self.made_in = os.getpid()
        self._thread = threading.Thread(target=self._run, args=(produce,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which its prefetcher ends if an interrupt comes meanwhile."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    @property
    def is_ending(self) -> bool:
        """Whether the thread was told to end, and has not yet."""
        return self._channel.closed and self.is_running

    def tell(self) -> None:
        """Tell the thread to end."""
        # In a fork the lock may be held for ever.
        if os.getpid() == self.made_in:
            self._channel.close()

    def end(self) -> None:
        """Tell the thread to end and join it; warns where it never ends."""
        self.tell()
        current = self._thread is threading.current_thread()
        if current or self._channel.hangs or os.getpid() != self.made_in:
            return

        def ended(seconds: float | None) -> bool:
            self._thread.join(seconds)
            return not self.is_running

        try:
            self._wait(ended)
        except LoaderError as error:
            self._channel.hangs = True
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def _run(self, produce: Callable[[], Iterator[Any]]) -> None:
        _running.add(self)
        channel = self._channel
        try:
            for item in produce():
                if not channel.put(item):
                    return
                del item  # else a chunk would be held while the next one is read
        except BaseException as error:  # noqa: BLE001 - whatever it is, the consumer raises it
            channel.finish(error)
        else:
            channel.finish()
        finally:
            _running.discard(self)


_running: set[Reader] = set()


@atexit.register
def _end_all() -> None:
    """A daemon thread within the decoder must not outlive the interpreter."""
    for reader in list(_running):
        reader.end()
