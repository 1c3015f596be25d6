"""`TorchLoader`: parquet straight into PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.dlpack import from_dlpack

from loader.batches.stream import Stream
from loader.errors import LoaderError
from loader.files.layout import BatchLayout, refuse_strings
from loader.frameworks.array_loader import ArrayLoader
from loader.gpu.exported_tensor import ExportedTensor
from loader.opening.open_loader import Data, OpenedDevice

# Keras takes so many batches of a pass to learn their shapes, drops it, and begins another one to train.
_MOST_GLANCED_AT = 2


class TorchLoader(ArrayLoader, IterableDataset):
    """Batches of a parquet data set as PyTorch tensors, read in the background.

    An `IterableDataset` of whole batches with the arguments of `ArrayLoader`, and the same rows in
    the same order. Batches come in tensors over the memory that was read, without a copy; with
    `device="gpu:0"`, where cuDF decodes and TensorFlow has to be installed, they are on the GPU; the
    memory of a batch lives until the work that was queued for it before the next one is done.
    Iterate over it, or pass it to a `DataLoader` with `batch_size=None` and without worker
    processes: threads read ahead already. `state_dict` and `load_state_dict` are its position, as
    torchdata's `StatefulDataLoader` asks for it. If the first pass, or the first after
    `load_state_dict`, is dropped within two batches, as by Keras' `fit`, which learns their shapes
    from it, the next pass begins at the same position.

    If `torch.distributed` is initialised, each process takes its own share; pass the same `seed` to
    all.

    Raises:
        LoaderError: as `ArrayLoader` does; columns of strings, which PyTorch has no tensors for.
            When iterated: inside a worker process of a `DataLoader`.

    Example:
        >>> train = TorchLoader(  # doctest: +SKIP
        ...     "train/*.parquet", batch_size=65536, label_names=["rating"], cat_names=["userId"]
        ... )
        >>> for x, y in train:  # doctest: +SKIP
        ...     loss = criterion(model(x), y.float())
        >>> keras_model.fit(DataLoader(train, batch_size=None), epochs=3)  # doctest: +SKIP
    """

    _start: Mapping[str, Any] | None = None
    _first: ref[Stream] | None = None

    def __iter__(self) -> Iterator[Any]:
        """One epoch of batches."""
        if get_worker_info() is not None:
            raise LoaderError(
                "Expected a DataLoader without worker processes, since each of them would read all "
                "rows. Received: one of several. Pass num_workers=0; threads read ahead."
            )
        stream = self._epochs.stream()
        if self._first is None:
            self._start, self._first = self.get_state(), ref(stream)
        elif (start := self._start) is not None:
            end = self.get_state()
            batches = end["batch"] - start["batch"] if end["epoch"] == start["epoch"] else 0
            if self._first() is None and 0 < batches <= _MOST_GLANCED_AT:
                self._epochs.set_state(start)
            self._start = None
        return map(self._transport.to_batch, stream)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume the next epoch at a position; see `ArrayLoader.set_state`."""
        super().set_state(state)
        self._start = self._first = None

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch handed out; see `get_state`."""
        return self.get_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the next epoch at a position; see `set_state`."""
        self.set_state(state)

    def _current_worker(self) -> tuple[int, int] | None:
        group = torch.distributed
        if not group.is_available() or not group.is_initialized():
            return None
        return group.get_world_size(), group.get_rank()

    def _check(self, layout: BatchLayout) -> None:
        refuse_strings(layout, "PyTorch")

    def _open(self, device: Any, data: Data) -> OpenedDevice:
        opened = super()._open(device, data)
        if opened.name == "cpu":
            return opened
        number = int(opened.name.partition(":")[2])
        return replace(opened, transport=_KeptBatches(opened.transport, number))

    def _tensors(self, arrays: Sequence[Any]) -> Iterable[Any]:
        return map(torch.from_numpy, arrays)

    def _from_gpu(self, tensor: Any) -> Any:
        return torch.from_dlpack(ExportedTensor(tensor))

    def _columns_of_gpu(self, batch: Any, transport: Any) -> Sequence[Any]:
        from loader.gpu.dlpack import capsule_of  # noqa: PLC0415 - it imports TensorFlow

        pairs = zip(batch.columns(), transport.format.places, strict=True)
        parts = [(from_dlpack(capsule_of(view, transport.number)), place) for view, place in pairs]
        return [
            column if place.dtype is None else column.to(getattr(torch, place.dtype.name))
            for column, place in parts
        ]


class _KeptBatches:
    """Batches whose memory lives until PyTorch's work that was queued with them has ended.

    The memory belongs to TensorFlow, which may fill it with other rows as soon as nobody refers to
    it, while kernels in PyTorch's stream still have to read it.

    Args:
        transport: makes batches.
        device: the GPU's number.
    """

    def __init__(self, transport: Any, device: int) -> None:
        self._transport = transport
        self._device = device
        self._kept: deque[tuple[Any, Any]] = deque()
        self._last: Any = None

    def to_batch(self, batch: Any) -> Any:
        """See `BatchMaker`."""
        if self._last is not None:
            # What reads the last batch was queued before the next one is requested.
            event = torch.cuda.current_stream(self._device).record_event()
            self._kept.append((event, self._last))
        while self._kept and self._kept[0][0].query():
            self._kept.popleft()
        self._last = self._transport.to_batch(batch)
        return self._last
