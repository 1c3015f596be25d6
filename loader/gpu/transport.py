"""Transport of batches on the GPU into TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.gpu.blocks import DeviceBatch
from loader.gpu.column_matrix import BatchFormat
from loader.gpu.dlpack import as_tensor, device_number
from loader.tensorflow.batch_spec import batch_spec
from loader.tensorflow.private import DirectCall


class DeviceTransport:
    """Transport of the parts of a batch on a GPU; see `loader.tensorflow.tensors.Transport`.

    Args:
        batch_format: how columns travel.
        device: TensorFlow's name of the GPU.

    Attributes:
        format: see above.
        number: DLPack's number of the GPU.
    """

    def __init__(self, batch_format: BatchFormat, device: str) -> None:
        self.device = device
        self.specs = batch_format.specs
        self.element_spec = batch_spec(batch_format.specs, self._make)
        self.format = batch_format
        self.number = device_number(device)
        self._called: list[DirectCall] = []

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Call Python with tensors that stay on this device, unlike `tf.numpy_function`.

        The function lives for as long as this transport.
        """
        direct = DirectCall(function, [spec.dtype for spec in self.specs])
        self._called.append(direct)
        return direct.operation(inputs)

    def arrange(self, batch: DeviceBatch) -> list[Any]:
        """Parts are in the order of the specs already."""
        return list(batch.parts)

    def to_batch(self, batch: DeviceBatch) -> Any:
        """A batch of eager tensors, most of them made without a TensorFlow operation."""
        if not batch.block.columns:
            return self._make(batch.parts)
        pairs = zip(batch.columns(), self.format.places, strict=True)
        columns = [place.narrow(as_tensor(view, self.number)) for view, place in pairs]
        return self.format.batch_of(columns, batch.parts)

    def _make(self, parts: Sequence[tf.Tensor]) -> Any:
        """A batch of tensors, eager or in a graph, by operations."""
        return self.format.layout.pack(self.format.tensors(parts))

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Elements are made where they are used; a separate thread hands them over.

        Passing a batch between two threads of TensorFlow's own pool takes a fifth of a compiled
        loop's time.
        """
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        return dataset.with_options(options)
