"""GPU memory that the loader takes, and gives back."""

from __future__ import annotations

import concurrent.futures
import time
from pathlib import Path

import polars as pl
import tensorflow as tf

from benchmarks.gpu_loader_data import make_loader, python_epoch, wait


def check_leaks(files: list[Path]) -> None:
    """GPU memory after many loaders that were opened, read a little and dropped."""
    import rmm  # noqa: PLC0415 - only where there is a GPU

    free = []
    for number in range(40):
        for _ in make_loader(files, 65_536, buffer_size=2e9):
            break
        if number in (9, 39):
            free.append(rmm.mr.available_device_memory()[0])
    print(
        f"leak: GPU memory free after 10 and 40 abandoned epochs: {free[0] / 1e9:.2f}, {free[1] / 1e9:.2f} GB",
        flush=True,
    )


def check_memory(files: list[Path]) -> None:
    """The most GPU memory in use during an epoch, against the buffer that was asked for.

    Counted from before the libraries' first kernels. What these take for good is told as well:
    the memory in use after an epoch with the smallest buffer there is.
    """
    import rmm  # noqa: PLC0415 - only where there is a GPU

    wait(tf.zeros([1]) + 1)  # what TensorFlow takes by itself
    before = rmm.mr.available_device_memory()[0]
    decoded = pl.scan_parquet(files).select(pl.len()).collect().item() * 40 * 4
    fixed = before - _least_free(files[:1], 1)
    print(f"memory: {fixed / 1e6:,.0f} MB with a buffer of one batch (10 MB)", flush=True)
    for share in (20, 5):  # the smaller one first: pools keep what they have
        buffer = decoded / share
        most = before - _least_free(files, buffer)
        print(
            f"memory: buffer {buffer / 1e6:,.0f} MB, data {share} times as large: "
            f"at most {most / 1e6:,.0f} MB in use beyond those before the first epoch, "
            f"{most / buffer:.2f} of the buffer",
            flush=True,
        )


def _least_free(files: list[Path], buffer: float) -> int:
    import rmm  # noqa: PLC0415 - only where there is a GPU

    data = make_loader(files, 65_536, buffer_size=buffer)
    least = rmm.mr.available_device_memory()[0]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        epoch = pool.submit(python_epoch, data)
        while not epoch.done():
            least = min(least, rmm.mr.available_device_memory()[0])
            time.sleep(0.001)
    epoch.result()
    return int(least)
