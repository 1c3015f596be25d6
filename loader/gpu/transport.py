"""Batches on the GPU, as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.gpu.batch_spec import batch_spec
from loader.gpu.blocks import DeviceBatch
from loader.gpu.memory_views import as_tensor, device_number
from loader.gpu.packing import Packing
from loader.tensors import pack


class DeviceTransport:
    """Parts of a batch on a GPU; see `loader.tensors.Transport`.

    Args:
        packing: how columns travel.
        device: TensorFlow's name of the GPU.
    """

    def __init__(self, packing: Packing, device: str) -> None:
        self.device = device
        self.specs = packing.specs
        self.element_spec = batch_spec(packing.specs, self._make)
        self._packing = packing
        self._number = device_number(device)

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Unlike `tf.numpy_function` this leaves tensors where they are."""
        return tf.py_function(function, inputs, [spec.dtype for spec in self.specs])

    def arrange(self, batch: DeviceBatch) -> list[Any]:
        """Parts come in the order of the specs."""
        return list(batch.parts)

    def to_batch(self, batch: DeviceBatch) -> Any:
        """A batch of eager tensors: without an operation for most of them."""
        if not batch.columns:
            return self._make(batch.parts)
        columns = [as_tensor(view, self._number) for view in batch.columns]
        return pack(self._packing.layout, self._packing.tensors_of(columns, batch.parts))

    def _make(self, parts: Sequence[tf.Tensor]) -> Any:
        """A batch of tensors, eager or in a graph, by operations."""
        return pack(self._packing.layout, self._packing.tensors(parts))

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Nothing: elements are made where they are used."""
        return dataset
