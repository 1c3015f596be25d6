"""The devices on which a loader decodes data and leaves batches: the CPU, or a GPU."""

from __future__ import annotations

import functools
import importlib.util
import re
from dataclasses import replace
from typing import Any

import tensorflow as tf

from loader.errors import LoaderError
from loader.gpu.column_matrix import BatchFormat, carries
from loader.opening.open_loader import Data, OpenedDevice, open_host
from loader.options import Budget
from loader.read.damaged import PieceReader, SkippingReader, UnchangedReader
from loader.read.source import ParquetData
from loader.tensorflow.memory import configure_as_environment_asks
from loader.tensorflow.sparse import SparseTransport
from loader.tensorflow.tensors import HostTransport
from workflow.first_use import install_command

# Memory that cuDF's and TensorFlow's kernels and pools occupy on an H200 after their first run.
_GPU_FIXED = 190_000_000


def open_device(device: Any, data: Data) -> OpenedDevice:
    """Open the device that `device` names, for TensorFlow.

    Args:
        device: "cpu"; a GPU's number on this machine, or "gpu:<number>"; or None. None takes the
            first GPU that TensorFlow may use if cuDF is installed, the data is in local files that
            are read without `reader_kwargs`, and all columns are numeric with one type in all files;
            else the CPU.
        data: the data to read.

    Raises:
        LoaderError: an unknown device, or a device that cannot take this data.
    """
    configure_as_environment_asks()
    if device == "cpu" or (device is None and not _suits_gpu(data)):
        opened = open_host(data, HostTransport(data.layout), only_reads=True)
    else:
        opened = _open_gpu(gpu_number(device), data)
    if any(column.is_sparse for column in data.layout.columns):
        return replace(opened, transport=SparseTransport(opened.transport, data.layout))
    return opened


def _suits_gpu(data: Data) -> bool:
    return (
        isinstance(data.data, ParquetData)
        and not data.reader_kwargs
        and _has_cudf()
        and bool(gpus_of_tensorflow())
        and all(map(carries, data.layout.columns))
        and data.source.is_alike()
        and data.source.fetcher is None
    )


def _has_cudf() -> bool:
    return importlib.util.find_spec("pylibcudf") is not None


def gpus_of_tensorflow() -> dict[int, str]:
    """TensorFlow's names of the GPUs it may use, by CUDA's number.

    The numbers differ where some GPUs are hidden from TensorFlow, as by `configure_tensorflow`.
    """
    all_of_them = tf.config.list_physical_devices("GPU")
    visible = tf.config.get_visible_devices("GPU")
    return {all_of_them.index(gpu): f"/gpu:{place}" for place, gpu in enumerate(visible)}


def gpu_number(device: Any) -> int:
    """CUDA's number of the GPU that a loader's argument `device` names.

    Raises:
        LoaderError: TensorFlow may not use such a GPU, or cuDF is not installed.
    """
    numbers = list(gpus_of_tensorflow())
    number = numbers[0] if device is None else device
    if isinstance(device, str) and (match := re.fullmatch(r"gpu(?::(\d+))?", device)):
        number = int(match[1] or 0)
    if type(number) is not int or number not in numbers:
        among = f"among {numbers}" if numbers else 'but TensorFlow sees none here: pass "cpu"'
        raise LoaderError(
            'Expected device as "cpu", None, or a GPU that TensorFlow may use, as its number or '
            f'"gpu:<number>", {among}. Received: {device!r}.'
        )
    if not _has_cudf():
        raise LoaderError(
            f"Expected cuDF's pylibcudf for device={device!r}. Received: no such package. "
            f'In an environment without [serve]: {install_command("gpu")}. Or pass device="cpu".'
        )
    return number


def _open_gpu(number: int, data: Data) -> OpenedDevice:
    layout, source = data.layout, data.source
    if not isinstance(data.data, ParquetData):
        raise LoaderError(
            'Expected parquet files for a GPU. Received: a frame in memory. Pass device="cpu".'
        )
    if source.fetcher is not None:
        raise LoaderError(
            "Expected local files for a GPU. Received: objects of a store, such as "
            f'{source.row_groups[0].path}. Copy them to this machine, or pass device="cpu".'
        )
    if not source.is_alike():
        raise LoaderError(
            "Expected files that contain each column with one type, for a GPU. Received: columns "
            "of several types, columns from folder names, or uint32 that parquet's version 1.0 stores "
            "as int64. Write all files with one schema, and version 2.4 or later, or pass "
            'device="cpu".'
        )
    if data.reader_kwargs:
        raise LoaderError(
            f"Expected reader_kwargs on the CPU only. Received: {dict(data.reader_kwargs)}. "
            'Leave them out, or pass device="cpu".'
        )
    from loader.gpu.blocks import DeviceBlocks  # noqa: PLC0415 - only where there is a GPU
    from loader.gpu.cuda import end_without_gpu, is_busy, prepare_memory  # noqa: PLC0415
    from loader.gpu.decoder import Decoder  # noqa: PLC0415
    from loader.gpu.reader import DeviceReader  # noqa: PLC0415
    from loader.gpu.transport import DeviceTransport  # noqa: PLC0415
    from loader.gpu.watchdog import WatchedReader  # noqa: PLC0415

    batch_format = BatchFormat(layout)
    transport = DeviceTransport(batch_format, gpus_of_tensorflow()[number])
    memory = prepare_memory(number)
    decoder = Decoder(layout, source.row_groups, number)
    watched = WatchedReader(
        decoder, functools.partial(is_busy, decoder.stream), data.decode_timeout, end_without_gpu
    )
    tables: PieceReader[Any] = UnchangedReader(watched, source)
    if source.skipped is not None:
        tables = SkippingReader(tables, source.row_groups, source.skipped)
    reader = DeviceReader(tables, batch_format, number, transport.device, watched.wait)
    # Copies of a chunk at its largest: compressed, decoded while the chunk before is gathered, laid
    # out side by side, copied for TensorFlow, joined with the rows before and cut; its table, one
    # block waiting and one in use.
    return OpenedDevice(
        f"gpu:{number}",
        DeviceBlocks(reader, batch_format, transport.device),
        transport,
        Budget(memory, copies=10, fixed=_GPU_FIXED),
        watched.wait,
    )
