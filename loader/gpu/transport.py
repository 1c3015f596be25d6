"""Batches on the GPU, as TensorFlow takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops

from loader.gpu.blocks import DeviceBatch
from loader.gpu.column_matrix import Packing
from loader.gpu.dlpack import as_tensor, device_number
from loader.tensorflow.batch_spec import batch_spec
from loader.tensorflow.tensors import pack


class _Direct(script_ops.EagerFunc):
    """A function whose result TensorFlow takes as it is.

    `tf.py_function` asks of every tensor whether it is one, where it is and whether somebody wants
    gradients: a fifth of what such a call takes.
    """

    def __call__(self, device: str, token: bytes, args: Sequence[tf.Tensor]) -> Any:
        del device, token
        return self._func(*args)


class DeviceTransport:
    """Parts of a batch on a GPU; see `loader.tensorflow.tensors.Transport`.

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
        self._called: list[_Direct] = []

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Unlike `tf.numpy_function` this leaves tensors where they are.

        They have to be on this device. The function lives for as long as this does.
        """
        dtypes = [spec.dtype for spec in self.specs]
        direct = _Direct(function, dtypes, is_grad_func=False)
        self._called.append(direct)
        token = script_ops._py_funcs.insert(direct)  # noqa: SLF001 - as tf.py_function does
        return tf.raw_ops.EagerPyFunc(input=inputs, token=token, Tout=dtypes)

    def arrange(self, batch: DeviceBatch) -> list[Any]:
        """Parts come in the order of the specs."""
        return list(batch.parts)

    def to_batch(self, batch: DeviceBatch) -> Any:
        """A batch of eager tensors: without an operation for most of them."""
        if not batch.block:
            return self._make(batch.parts)
        columns = [as_tensor(view, self._number) for view in batch.columns()]
        return pack(self._packing.layout, self._packing.tensors_of(columns, batch.parts))

    def _make(self, parts: Sequence[tf.Tensor]) -> Any:
        """A batch of tensors, eager or in a graph, by operations."""
        return pack(self._packing.layout, self._packing.tensors(parts))

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Elements are made where they are used; what hands them over has a thread of its own.

        From one thread to the next of TensorFlow's pool a batch takes a fifth of a compiled loop's
        time.
        """
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        return dataset.with_options(options)
