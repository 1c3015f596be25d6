"""Random damage to the pages of one row group, and what a loader makes of it.

    python tests/gpu/damage_pages.py FOLDER DEVICE FIRST SECONDS

tries damage number FIRST, and those that follow for as many seconds, and prints a line of JSON for
each. It ends earlier with the GPU: a decoder that reads outside of memory takes the process's CUDA
context with it. So `test_loader_damage.py` runs it in a process of its own, again and again.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_GPU_ALLOCATOR", "cuda_malloc_async")

import numpy as np
import pyarrow.parquet as pq

from loader import KerasSequenceLoader, LoaderError, configure_tensorflow

GROUP = 2_000
GRACE = 60  # seconds that a process may take to begin and to end
TIMEOUT = 3.0  # seconds after which a GPU at work counts as hanging
LOST = "lost the GPU, and told"
HANG = "hang told"
NOTICED = ("error with its place", "replaced", LOST, HANG)
# What a user can live with. A decoder cannot notice all damage: a value may just be another one.
GOOD = ("no difference", "other values in the row group", *NOTICED)


def try_damage(folder, device, first, seconds):
    """Damage the second row group's pages, again and again, and print what came of it."""
    good = folder / "good.parquet"
    tried = folder / f"tried-{device.replace(':', '')}.parquet"
    expected = _read(good, device, "raise")
    end = time.monotonic() + seconds
    number = first
    outcome = ""
    while time.monotonic() < end and outcome not in (LOST, HANG):
        mode = ("raise", "skip")[number % 2]
        tried.write_bytes(_damaged(good, number))
        outcome = _outcome(tried, device, mode, expected)
        told = _outcome_when_lost(good, device) if outcome == LOST else outcome
        sys.stdout.write(json.dumps([mode, told]) + "\n")
        sys.stdout.flush()
        number += 1
    if outcome != HANG:  # after which a process has to end as usual
        os._exit(0)  # TensorFlow's own end would fail without its GPU, and tell nothing


def _damaged(file, number):
    """A file's bytes with a bit flipped, or 64 bytes zeroed, in its second row group."""
    data, random = bytearray(file.read_bytes()), np.random.default_rng(number)
    start, stop = extent(file, 1)
    place = int(random.integers(start, stop - 64))
    if random.integers(2):
        data[place] ^= 1 << int(random.integers(8))
    else:
        data[place : place + 64] = bytes(64)
    return bytes(data)


def extent(file, row_group):
    """The first byte of a row group's pages in its file, and the one after the last."""
    group = pq.read_metadata(file).row_group(row_group)
    chunks = [group.column(number) for number in range(group.num_columns)]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    ends = [
        start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)
    ]
    return min(starts), max(ends)


def break_pages(file, row_group):
    """Overwrite all pages of a row group."""
    data = bytearray(file.read_bytes())
    start, stop = extent(file, row_group)
    data[start:stop] = b"\xff" * (stop - start)
    file.write_bytes(data)


def _outcome(file, device, mode, expected):
    try:
        found = _read(file, device, mode)
    except LoaderError as error:
        return _told(str(error), file, mode)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        return f"WRONG error: {type(error).__name__}: {error}"[:300]
    if np.array_equal(found, expected):
        return "no difference"
    first, _, last = np.split(expected, 3)
    if mode == "skip" and np.array_equal(found, np.concatenate([first, last, last])):
        return "replaced"
    others_same = len(found) == len(expected) and all(
        np.array_equal(found[part], expected[part])
        for part in (slice(GROUP), slice(2 * GROUP, None))
    )
    return "other values in the row group" if others_same else "WRONG rows of other row groups"


def _told(error, file, mode):
    if f"{file}, row group" in error and "does not finish" in error:
        return HANG
    if f"{file}, row group" in error and "only in a new process" in error:
        return LOST
    named = mode == "raise" and f"{file}, row group 1" in error
    return "error with its place" if named else f"WRONG error: {error}"[:300]


def _outcome_when_lost(good, device):
    """The next loader in the same process has to tell it as well."""
    try:
        _read(good, device, "raise")
    except LoaderError as error:
        return LOST if "only in a new process" in str(error) else f"WRONG after it: {error}"[:300]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        return f"WRONG after it: {type(error).__name__}: {error}"[:300]
    return "WRONG: it said that the GPU was lost, and it was not"


def _read(file, device, on_bad_files):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loader = KerasSequenceLoader(
            file,
            3 * GROUP,
            device=device,
            shuffle=False,
            on_bad_files=on_bad_files,
            decode_timeout=TIMEOUT,
            label_names=["label"],
            cat_names=["id", "long"],
        )
        ((x, y),) = loader
    return np.concatenate([x["id"].numpy(), x["long"].numpy(), y.numpy()], axis=1, dtype=np.int64)


if __name__ == "__main__":
    folder, device, first, seconds = sys.argv[1:]
    faulthandler.dump_traceback_later(float(seconds) + GRACE - 5)
    configure_tensorflow(2_000)  # MB: several processes share the GPU
    try_damage(Path(folder), device, int(first), float(seconds))
