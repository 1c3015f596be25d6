"""Devices on which a loader decodes its data and leaves its batches: the CPU, or a GPU."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from loader.batches.batches import BlockSource
from loader.batches.prefetch import Wait, wait_without_limit
from loader.errors import LoaderError
from loader.files.layout import BatchLayout
from loader.files.parquet_files import ReadableFiles
from loader.gpu.column_matrix import Packing, carries
from loader.options import Budget, check_timeout
from loader.read.cpu_blocks import HostBlocks
from loader.read.damaged import PieceReader, SkippingReader, UnchangedReader
from loader.read.source import FrameData, ParquetData
from loader.tensorflow.tensors import HostTransport, Transport
from loader.tensorflow_memory import configure_as_environment_asks

# What cuDF's and TensorFlow's kernels and pools take on an H200 once they have run.
_GPU_FIXED = 190_000_000


@dataclass(frozen=True)
class Device:
    """Parts of a loader that depend on the device.

    Attributes:
        name: "cpu" or "gpu:0".
        source: gives blocks of rows.
        transport: brings batches into TensorFlow.
        budget: what its memory has to hold.
        wait: how to wait for the source.
    """

    name: str
    source: BlockSource
    transport: Transport
    budget: Budget
    wait: Wait = wait_without_limit


def open_device(
    device: Any,
    data: ParquetData | FrameData,
    source: ReadableFiles,
    layout: BatchLayout,
    reader_kwargs: Mapping[str, Any] | None,
    decode_timeout: float | None,
) -> Device:
    """The device that `device` names.

    Args:
        device: "cpu"; a GPU's number on this machine, or "gpu:<number>"; or None for the first
            GPU that TensorFlow may use, where there is one, cuDF is installed, the data is in
            files and its columns are numbers, of one type in all files, and else for the CPU.
        data: what is read.
        source: its row groups.
        layout: the columns of a batch.
        reader_kwargs: the reader's options.
        decode_timeout: seconds after which a GPU that decodes counts as hanging; None for never.

    Raises:
        LoaderError: there is no such device, it cannot take this data, or a limit below 0.
    """
    check_timeout(decode_timeout)
    configure_as_environment_asks()
    if device == "cpu" or (device is None and not _suits_gpu(data, source, layout)):
        # A chunk at its largest: the next one being decoded, one decoded, its copy in one piece,
        # that shuffled, one waiting to be cut into blocks, the last rows of the one before, a block
        # waiting to be cut into batches, one being cut.
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        blocks = HostBlocks(data.reader(layout, reader_kwargs, source), layout)
        return Device("cpu", blocks, HostTransport(layout), Budget(memory, copies=8))
    return _open_gpu(gpu_number(device), data, source, layout, reader_kwargs, decode_timeout)


def _suits_gpu(data: ParquetData | FrameData, source: ReadableFiles, layout: BatchLayout) -> bool:
    return (
        isinstance(data, ParquetData)
        and _has_cudf()
        and bool(gpus_of_tensorflow())
        and all(map(carries, layout.columns))
        and source.is_alike()
    )


def _has_cudf() -> bool:
    return importlib.util.find_spec("pylibcudf") is not None


def gpus_of_tensorflow() -> dict[int, str]:
    """TensorFlow's names of the GPUs that it may use, by the numbers that CUDA has for them.

    They differ where some are hidden from TensorFlow, as by `configure_tensorflow`.
    """
    all_of_them = tf.config.list_physical_devices("GPU")
    visible = tf.config.get_visible_devices("GPU")
    return {all_of_them.index(gpu): f"/gpu:{place}" for place, gpu in enumerate(visible)}


def gpu_number(device: Any) -> int:
    """CUDA's number of the GPU that a loader's argument `device` means.

    Raises:
        LoaderError: TensorFlow may use no such GPU, or cuDF is not installed.
    """
    numbers = list(gpus_of_tensorflow())
    number = numbers[0] if device is None else device
    if isinstance(device, str) and (found := re.fullmatch(r"gpu(?::(\d+))?", device)):
        number = int(found[1] or 0)
    if type(number) is not int or number not in numbers:
        raise LoaderError(
            'Expected device as "cpu", None, or a GPU that TensorFlow may use, as its number or '
            f'"gpu:<number>", among {numbers}. Received: {device!r}.'
        )
    if not _has_cudf():
        raise LoaderError(
            f"Expected cuDF's pylibcudf for device={device!r}. Received: no such package. Install "
            'the extra "gpu", or pass device="cpu".'
        )
    return number


def _open_gpu(
    number: int,
    data: ParquetData | FrameData,
    source: ReadableFiles,
    layout: BatchLayout,
    reader_kwargs: Mapping[str, Any] | None,
    decode_timeout: float | None,
) -> Device:
    if not isinstance(data, ParquetData):
        raise LoaderError(
            'Expected parquet files for a GPU. Received: a frame in memory. Pass device="cpu".'
        )
    if not source.is_alike():
        raise LoaderError(
            "Expected files that hold each column, as one type, for a GPU. Received: columns of "
            "several types, or in the names of folders. Write all files with one schema, or pass "
            'device="cpu".'
        )
    if reader_kwargs:
        raise LoaderError(
            f"Expected reader_kwargs on the CPU only. Received: {dict(reader_kwargs)}. "
            'Leave them out, or pass device="cpu".'
        )
    from loader.gpu.blocks import DeviceBlocks  # noqa: PLC0415 - only where there is a GPU
    from loader.gpu.cuda import end_without_gpu, is_busy, prepare_memory  # noqa: PLC0415
    from loader.gpu.decoder import Decoder  # noqa: PLC0415
    from loader.gpu.reader import DeviceReader  # noqa: PLC0415
    from loader.gpu.transport import DeviceTransport  # noqa: PLC0415
    from loader.gpu.watchdog import WatchedReader  # noqa: PLC0415

    packing = Packing(layout)
    transport = DeviceTransport(packing, gpus_of_tensorflow()[number])
    memory = prepare_memory(number)
    decoder = Decoder(layout, source.row_groups, number)
    watched = WatchedReader(
        decoder, functools.partial(is_busy, decoder.stream), decode_timeout, end_without_gpu
    )
    tables: PieceReader[Any] = UnchangedReader(watched, source)
    if source.skipped is not None:
        tables = SkippingReader(tables, source.row_groups, source.skipped)
    reader = DeviceReader(tables, packing, decoder.stream, transport.device)
    # A chunk at its largest: compressed, decoded, gathered, side by side, that copied for
    # TensorFlow, joined with the rows before, cut, one block waiting and one in use.
    return Device(
        f"gpu:{number}",
        DeviceBlocks(reader, packing, transport.device),
        transport,
        Budget(memory, copies=9, fixed=_GPU_FIXED),
        watched.wait,
    )
