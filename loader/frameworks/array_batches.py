"""Batches as the tensors of any framework: from arrays of the host, and from a GPU's memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loader.errors import LoaderError
from loader.files.layout import BatchLayout
from loader.opening.open_loader import Data, OpenedDevice, open_host
from workflow.first_use import install_command


@dataclass(frozen=True)
class HostBatches:
    """Batches of arrays, made the framework's tensors.

    Attributes:
        layout: the columns of a batch.
        tensors: arrays as the framework's tensors.
    """

    layout: BatchLayout
    tensors: Callable[[Sequence[Any]], Iterable[Any]]

    def to_batch(self, batch: Sequence[Any]) -> Any:
        """See `BatchMaker`."""
        return self.layout.pack(self.tensors(batch))


@dataclass(frozen=True)
class DeviceBatches:
    """Batches on a GPU, each of TensorFlow's tensors made the framework's.

    Attributes:
        transport: gives batches to TensorFlow.
        convert: makes the framework's tensor of one of TensorFlow's.
        columns: makes the framework's tensors of a batch's memory, or returns None.
    """

    transport: Any
    convert: Callable[[Any], Any]
    columns: Callable[[Any, Any], Sequence[Any] | None]

    def to_batch(self, batch: Any) -> Any:
        """See `BatchMaker`."""
        columns = self.columns(batch, self.transport) if batch.block.columns else None
        if columns is None:
            return self._converted(self.transport.to_batch(batch))
        return self.transport.format.batch_of(columns, batch.parts, self.convert)

    def _converted(self, part: Any) -> Any:
        if isinstance(part, dict):
            return {name: self._converted(value) for name, value in part.items()}
        if isinstance(part, tuple):
            return tuple(map(self._converted, part))
        return self.convert(part)


def open_arrays(
    device: Any,
    data: Data,
    host: HostBatches,
    convert: Callable[[Any], Any],
    columns: Callable[[Any, Any], Sequence[Any] | None],
) -> OpenedDevice:
    """Open the device of batches, which is the CPU where TensorFlow is not installed.

    Args:
        device: as the user gave it.
        data: the opened data.
        host: makes batches on the CPU.
        convert: see `DeviceBatches`.
        columns: see `DeviceBatches`.

    Raises:
        LoaderError: no such device, or a GPU without TensorFlow.
    """
    if device == "cpu" or (device is None and not _has_tensorflow()):
        return open_host(data, host)
    if not _has_tensorflow():
        raise LoaderError(
            'Expected device="cpu", or TensorFlow beside cuDF for another one, as "gpu:0". '
            f'Received: {device!r}, and no package tensorflow. Pass device="cpu", or install it: '
            f"{install_command('gpu')}."
        )
    from loader.opening.device import open_device  # noqa: PLC0415 - it imports TensorFlow

    opened = open_device(device, data)
    if opened.name == "cpu":
        return open_host(data, host)
    return replace(opened, transport=DeviceBatches(opened.transport, convert, columns))


def _has_tensorflow() -> bool:
    try:
        return importlib.util.find_spec("tensorflow") is not None
    except ValueError:  # a program that hides it, sys.modules["tensorflow"] = None
        return False
