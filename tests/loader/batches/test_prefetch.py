"""The background thread: it works ahead a little, passes errors on, and never stays."""

import gc
import itertools
import subprocess
import sys
import threading

import polars as pl
import pyarrow as pa
import pytest

from loader import LoaderError, epochs
from loader.batches.prefetch import Prefetcher


def loader_threads():
    return [thread for thread in threading.enumerate() if thread.name == "parquet-loader"]


def left_threads():
    """The threads that have not ended some time after they were told to."""
    gc.collect()
    for thread in loader_threads():
        thread.join(10)
    return loader_threads()


def test_items_in_order_then_the_error_itself():
    problem = RuntimeError("broken")

    def produce():
        yield from range(3)
        raise problem

    with Prefetcher(produce) as items:
        assert [next(items) for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(RuntimeError) as caught:
                next(items)
            assert caught.value is problem


def test_an_interrupt_while_the_thread_starts_leaves_no_thread(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Prefetcher(itertools.count)
    assert left_threads() == []


def test_it_works_ahead_by_no_more_than_asked():
    made = []
    asked = threading.Semaphore(0)

    def produce():
        for number in range(100):
            made.append(number)
            asked.release()
            yield number

    with Prefetcher(produce, ahead=2) as items:
        assert next(items) == 0
        for _ in range(4):  # one taken, two waiting, one in the producer's hand
            assert asked.acquire(timeout=10)
        assert not asked.acquire(timeout=0.05)
    assert len(made) == 4
    assert list(items) == []


@pytest.mark.timeout(60)
def test_a_dropped_iterator_is_not_waited_for():
    """A garbage collection drops it wherever it runs, as with a lock that the thread waits for."""
    going = threading.Event()

    def produce():
        yield 1
        going.wait()

    items = Prefetcher(produce)
    assert next(items) == 1
    (thread,) = loader_threads()
    del items
    gc.collect()
    assert thread.is_alive()
    going.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_dropped_epoch_ends_before_the_next_one_begins(make, monkeypatch):
    """Both would hold rows."""
    loader = make(batch_size=8, buffer_size=20_000)
    next(iter(loader))
    (thread,) = loader_threads()
    alive = []

    def begin(*arguments, **options):
        alive.append(thread.is_alive())
        return Prefetcher(*arguments, **options)

    monkeypatch.setattr(epochs, "Prefetcher", begin)
    next(iter(loader))
    assert alive == [False]


def test_a_dropped_epoch_ends_before_its_loader_is_closed(make):
    loader = make(batch_size=8, buffer_size=20_000)
    next(iter(loader))
    (thread,) = loader_threads()
    loader.close()
    assert not thread.is_alive()


def test_an_abandoned_iterator_leaves_no_thread(make):
    iterator = iter(make(batch_size=8, buffer_size=20_000))
    next(iterator)
    assert loader_threads()
    del iterator
    assert not left_threads()


def test_an_abandoned_fit_leaves_no_thread(make):
    for _ in make(batch_size=8, buffer_size=20_000).take(2):
        pass
    assert not left_threads()


def test_many_half_read_epochs_leave_nothing(make):
    loader = make(batch_size=8, buffer_size=20_000)
    for _ in range(20):
        next(iter(loader))
    assert not left_threads()


def test_a_dropped_loader_is_freed_with_its_data(make, ratings):
    before = pa.total_allocated_bytes()
    # Frames of Polars are borrowed, and this one borrows memory that Arrow counts.
    loader = make(pl.from_arrow(ratings.to_arrow().take(pa.array(range(ratings.height)))))
    list(loader)
    list(loader.take(2))
    assert pa.total_allocated_bytes() > before
    del loader
    assert not left_threads()
    assert pa.total_allocated_bytes() == before


def test_a_dataset_that_outlives_its_loader_reads_on(make, users):
    batches = make(shuffle=False).map(lambda x, y: (x, y))
    gc.collect()
    assert users(batches) == list(range(1000))


def test_no_thread_after_an_error_or_an_end(make, tmp_path, folder):
    file = tmp_path / "0.parquet"
    file.write_bytes((folder / "0.parquet").read_bytes())
    loader = make(file)
    list(loader)
    assert not loader_threads()
    file.unlink()
    with pytest.raises(LoaderError):
        list(loader)
    assert not left_threads()


def test_the_interpreter_ends_with_an_epoch_half_read(folder):
    code = (
        "from loader import KerasSequenceLoader\n"
        f"loader = KerasSequenceLoader({str(folder)!r}, 8, ['rating'], cat_names=['userId'])\n"
        "iterator = iter(loader); next(iterator)\n"
        "batches = iter(loader.take(99)); next(batches); print('read')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout == "read\n"
    assert done.returncode == 0, done.stderr
