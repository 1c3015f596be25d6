"""Batches on the GPU, as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.gpu.batch_spec import batch_spec
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
        self.element_spec = batch_spec(packing.specs, self.to_batch)
        self._packing = packing

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Unlike `tf.numpy_function` this leaves tensors where they are."""
        return tf.py_function(function, inputs, [spec.dtype for spec in self.specs])

    def arrange(self, parts: Sequence[Any]) -> list[Any]:
        """Parts come in the order of the specs."""
        return list(parts)

    def to_batch(self, parts: Sequence[Any]) -> Any:
        """A batch of tensors, eager or in a graph."""
        return pack(self._packing.layout, self._packing.tensors(parts))

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Nothing: elements are made where they are used."""
        return dataset
