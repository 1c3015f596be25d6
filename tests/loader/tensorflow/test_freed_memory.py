"""Memory that TensorFlow frees is taken again, as before a process had a generator dataset."""

import os
import subprocess
import sys

import polars as pl
import pytest

# Pages that the system gives for 20 blocks of 8 MB, each of which is freed before the next is taken.
PAGES = """
import ctypes, resource, sys
from loader import KerasSequenceLoader

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
    ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
)

def blocks(count):
    for _ in range(count):
        block = libc.malloc(8 << 20)
        ctypes.memset(block, 1, 8 << 20)
        libc.free(block)

for _ in KerasSequenceLoader(sys.argv[1], 100, cat_names=["x"]).as_dataset():
    pass
blocks(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
A_BLOCK = (8 << 20) // os.sysconf("SC_PAGE_SIZE")


def pages(folder, **environment):
    pl.DataFrame({"x": range(1000)}).write_parquet(folder / "x.parquet")
    done = subprocess.run(
        [sys.executable, "-c", PAGES, folder],
        env={name: text for name, text in os.environ.items() if name[:7] != "MALLOC_"}
        | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_block_that_was_freed_is_taken_again(tmp_path):
    assert pages(tmp_path) < A_BLOCK


@pytest.mark.long
def test_the_environment_decides_where_it_says_so(tmp_path):
    assert pages(tmp_path, MALLOC_MMAP_THRESHOLD_="1048576") >= 20 * A_BLOCK
