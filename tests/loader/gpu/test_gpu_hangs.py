"""A GPU that never comes to an end: who waits is told, and nobody waits for ever.

Where there is no GPU, a thread that waits for an event hangs as well as one in a kernel does.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf
from gpu_rows import LAYOUT

from loader import KerasSequenceLoader, LoaderError
from loader.batches.prefetch import Prefetcher
from loader.epochs import Epochs, Settings
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.transport import DeviceTransport
from loader.gpu.watchdog import WatchedReader
from loader.order.epoch_plan import Piece, Share
from loader.order.mixing import Mixing
from loader.tensorflow.generator_dataset import GeneratorFunctions, StreamRegistry

PIECES = [
    Piece("a.parquet", 3, 300, 100, 3),
    Piece("b.parquet", 0, 400, 50, 4),
    Piece("b.parquet", 0, 450, 50, 5),
    Piece("b.parquet", 2, 600, 100, 6),
]
TOLD = r"decode a\.parquet, row group 3; b\.parquet, row groups 0, 2 within 0\.3 s .*new process"


class HangingDecoder:
    """Reads what it is told to, and is at work for as long as it is not let go."""

    def __init__(self):
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.given_up = threading.Event()
        self.is_busy = True

    def read(self, pieces):
        self.begun.set()
        assert self.go_on.wait(60)
        return len(pieces)


@pytest.fixture
def decoder():
    decoder = HangingDecoder()
    yield decoder
    decoder.go_on.set()


@pytest.fixture
def watched(decoder):
    return WatchedReader(decoder, lambda: decoder.is_busy, 0.3, decoder.given_up.set)


def prefetcher(watched):
    return Prefetcher(lambda: iter([watched.read(PIECES)]), wait=watched.wait, name="hanging")


def test_who_waits_is_told_where_it_hangs_and_closing_does_not_wait(decoder, watched):
    items = prefetcher(watched)
    assert not decoder.given_up.is_set()
    for _ in range(2):  # asked again, it says so again
        with pytest.raises(LoaderError, match=TOLD):
            next(items)
    assert decoder.given_up.is_set()
    items.close()
    assert "hanging" in [thread.name for thread in threading.enumerate()], "it waited for its end"


def test_who_drops_it_unread_is_warned(decoder, watched):
    items = prefetcher(watched)
    assert decoder.begun.wait(60)
    with pytest.warns(RuntimeWarning, match=TOLD):
        items.close()


def test_every_reader_of_the_stream_is_told_of_the_first(decoder, watched):
    first = prefetcher(watched)
    assert decoder.begun.wait(60)
    second = Prefetcher(lambda: iter([watched.read(PIECES[:1])]), wait=watched.wait)
    with pytest.raises(LoaderError, match=TOLD):
        next(second)
    decoder.go_on.set()
    assert next(first) == 4


def test_a_read_that_waits_for_its_bytes_may_take_long(decoder, watched):
    decoder.is_busy = False
    threading.Timer(1.0, decoder.go_on.set).start()  # more than three times the limit
    with prefetcher(watched) as items:
        assert list(items) == [4]
    assert not decoder.given_up.is_set()


def test_work_that_goes_on_from_time_to_time_is_no_hang(decoder):
    looks = iter(range(1000))
    watched = WatchedReader(decoder, lambda: next(looks) % 2 == 0, 0.15, decoder.given_up.set)
    threading.Timer(0.8, decoder.go_on.set).start()
    with prefetcher(watched) as items:
        assert list(items) == [4]


def test_many_reads_that_take_no_longer_than_the_limit_are_no_hang():
    """The GPU is never seen idle, as when one read follows upon another."""

    class SlowDecoder:
        def read(self, pieces):
            time.sleep(0.4)
            return len(pieces)

    watched = WatchedReader(SlowDecoder(), lambda: True, 1.0, pytest.fail)

    def all_in_one():
        yield sum(watched.read(list(PIECES)) for _ in range(4))

    with Prefetcher(all_in_one, wait=watched.wait) as items:
        assert list(items) == [16]


def test_without_a_limit_it_waits(decoder):
    watched = WatchedReader(decoder, lambda: True, None, pytest.fail)
    threading.Timer(0.5, decoder.go_on.set).start()
    with prefetcher(watched) as items:
        assert list(items) == [4]


class HangingSource:
    chunks_per_read = 8
    order_by = "test"
    reads_parts = False

    def __init__(self, watched):
        self.watched = watched

    def in_order(self, groups, batch_size):
        del batch_size
        yield self.watched.read([p for group in groups for c in group for p in c.pieces])

    def mixed(self, groups, mixture, batch_size, seed):
        del mixture, seed
        return self.in_order([sorted(itertools.chain(*groups), key=first_row)], batch_size)


def first_row(chunk):
    return chunk.pieces[0].start


@pytest.fixture(params=[False, True], ids=["in order", "shuffled"])
def epochs(request, watched):
    settings = Settings(10, request.param, 0, None, Mixing(1, 0, 2, 4), 1000, False, Share())
    return Epochs(PIECES, HangingSource(watched), settings, wait=watched.wait)


def test_an_epoch_tells_it_and_lets_go(epochs):
    with pytest.raises(LoaderError, match=TOLD):
        next(epochs.stream())
    epochs.close()


def test_a_compiled_loop_tells_it_and_lets_go(epochs):
    transport = DeviceTransport(BatchFormat(LAYOUT), "/cpu:0")
    functions = GeneratorFunctions(StreamRegistry(epochs.stream), transport)
    iterator = iter(functions.dataset())
    with pytest.raises(tf.errors.InvalidArgumentError, match=TOLD):
        tf.function(lambda batches: tf.nest.flatten(next(batches)))(iterator)
    del iterator  # else it would wait here


def test_the_interpreter_ends_though_a_reader_hangs():
    code = """
import ctypes, sys, threading
from loader import LoaderError
from loader.gpu.cuda import end_without_gpu
from loader.gpu.watchdog import WatchedReader
from loader.order.epoch_plan import Piece
from loader.batches.prefetch import Prefetcher

libc = ctypes.CDLL(None)
libc.on_exit(libc.pause, None)  # as CUDA, which waits for the GPU at the end of a process

class Hanging:
    def read(self, pieces):
        threading.Event().wait()

watched = WatchedReader(Hanging(), lambda: True, 0.3, end_without_gpu)
pieces = [Piece("a.parquet", 3, 0, 10, 0)]
told = Prefetcher(lambda: iter([watched.read(pieces)]), wait=watched.wait)
try:
    next(told)
except LoaderError as error:
    print(error)
untold = Prefetcher(lambda: iter([watched.read(pieces)]), wait=watched.wait)
sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "decode a.parquet, row group 3 within" in done.stdout
    assert done.returncode == 7, done.stderr
    assert "RuntimeWarning: Expected the GPU to decode a.parquet" in done.stderr


@pytest.mark.parametrize("limit", [0, -1.0, "10", True, float("nan")])
def test_a_limit_that_makes_no_sense(folder, limit):
    with pytest.raises(LoaderError, match=r"decode_timeout as seconds above 0, or None.*Received"):
        KerasSequenceLoader(folder, 64, ["rating"], cat_names=["userId"], decode_timeout=limit)


def test_on_the_cpu_nothing_counts_as_hanging(make):
    assert sum(len(y) for _, y in make(decode_timeout=1e-9)) == 1000
