"""Kernels that keep a GPU at work for a second, or cost the process its GPU, beside a decoder.

    python tests/gpu/kernels.py FOLDER

loses the GPU, and prints what the loader says of it to who reads, and to who opens it anew.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

import polars as pl

from loader import LoaderError
from loader.files.layout import BatchColumn, BatchLayout
from loader.files.parquet_files import ColumnType, RowGroup
from loader.files.skipped import Skipped
from loader.gpu.cuda import prepare_memory, tell_gpu_errors
from loader.gpu.decoder import Decoder
from loader.order.epoch_plan import split_row_groups
from loader.read.damaged import SkippingReader

PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry lose() { trap; }
.visible .entry spin()
{
    .reg .pred %again;
    .reg .u64 %start, %now;
    mov.u64 %start, %globaltimer;
LOOP:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %again, %now, 1000000000;
    @%again bra LOOP;
    ret;
}
\0"""


def asked(name, *arguments):
    from cuda.bindings import driver

    status, *rest = getattr(driver, name)(*arguments)
    assert status == driver.CUresult.CUDA_SUCCESS, status
    return rest[0] if rest else None


@functools.cache  # loading waits for the kernels that run
def kernel(name):
    return asked("cuModuleGetFunction", asked("cuModuleLoadData", PTX), name)


def launch(name, stream=0):
    """Begin a kernel on a CUDA stream, on the GPU that this thread uses."""
    asked("cuLaunchKernel", kernel(name), 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)


def open_files(folder):
    """A decoder of two files of two row groups of 10 rows, these, and their pieces."""
    for name in ("a", "b"):
        rows = pl.DataFrame({"id": range(20)})
        rows.write_parquet(folder / f"{name}.parquet", row_group_size=10)
    files = [str(folder / f"{name}.parquet") for name in ("a", "b")]
    row_groups = [RowGroup(file, n, 10 * n, 10, 80) for file in files for n in (0, 1)]
    layout = BatchLayout((BatchColumn("id", ColumnType("int64")),), ())
    return Decoder(layout, row_groups, 0), row_groups, split_row_groups(row_groups, 100)


def error_of(function, *arguments):
    try:
        function(*arguments)
    except LoaderError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def allocate(pieces):
    """Take memory as a decoder does: RMM reports a lost GPU as a lack of memory."""
    import rmm

    with tell_gpu_errors(pieces):
        rmm.DeviceBuffer(size=1_000)


def lose(folder):
    prepare_memory(0)
    decoder, row_groups, pieces = open_files(folder)
    skipped = Skipped()
    reader = SkippingReader(decoder, row_groups, skipped)
    assert reader.read(pieces).num_rows() == 40
    launch(b"lose")
    told = [
        error_of(reader.read, pieces),
        error_of(allocate, pieces),
        error_of(prepare_memory, 0),
    ]
    assert not skipped.reasons, skipped.reasons
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # the end of a process needs the GPU


if __name__ == "__main__":
    lose(Path(sys.argv[1]))
