"""Batches as the tensors of any framework: from arrays of the host, and from a GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loader.files.layout import BatchLayout


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
