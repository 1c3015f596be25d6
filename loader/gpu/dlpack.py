"""Columns of a block as tensors over its memory, without a TensorFlow operation for each.

On eager tensors an operation costs five microseconds, an import through DLPack one and a half.
numpy does the slicing: it computes addresses and never reads the memory, so GPU memory can pose as
an array. Only the DLPack capsules of numpy's views name the wrong device, which is corrected before
TensorFlow sees them.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental.dlpack import from_dlpack, to_dlpack

from loader.batches.batches import Array

_KINDS = {"CPU": 1, "GPU": 2}


# The first words of a capsule's `DLManagedTensor`: the memory's address, and the device. A separate
# prototype, since `ctypes.pythonapi` is shared by all. A ctypes structure would be slower.
_words = ctypes.PYFUNCTYPE(ctypes.POINTER(ctypes.c_int64), ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_NAME = b"dltensor"
_ADDRESS, _DEVICE = 0, 1


class _Posing:
    """A tensor's memory, by address. Every view of it keeps the tensor alive."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor
        capsule = to_dlpack(tensor)  # owns the memory that its words are read from
        self.__array_interface__ = {
            "data": (_words(capsule, _NAME)[_ADDRESS], False),
            "shape": tuple(tensor.shape),
            "typestr": np.dtype(tensor.dtype.as_numpy_dtype).str,
            "version": 3,
        }


def as_array(tensor: tf.Tensor) -> Array:
    """A tensor's memory as an array that can be sliced, and must not be read if it is on a GPU.

    Blocks, holding the GIL, until the device has finished the work queued for it.

    Args:
        tensor: numeric, eager, not empty.
    """
    return np.asarray(_Posing(tensor))


def device_number(name: str) -> int:
    """DLPack's number for a device of TensorFlow.

    Args:
        name: a name such as "/gpu:0".
    """
    device = tf.DeviceSpec.from_string(name)
    return _KINDS[device.device_type] | device.device_index << 32


def capsule_of(view: Array, device: int) -> Any:
    """A DLPack capsule of a view of a result of `as_array`.

    Args:
        view: contiguous.
        device: the `device_number` of the memory's device.
    """
    capsule = view.__dlpack__()
    _words(capsule, _NAME)[_DEVICE] = device
    return capsule


def as_tensor(view: Array, device: int) -> tf.Tensor:
    """A view of a result of `as_array` as a tensor over the same memory.

    Args:
        view: contiguous, and aligned as TensorFlow's kernels require.
        device: the `device_number` of the memory's device.
    """
    return from_dlpack(capsule_of(view, device))


class ExportedView:
    """A view of a result of `as_array` for a framework that takes objects of DLPack's protocol.

    Args:
        view: contiguous.
        device: the `device_number` of the memory's device.
    """

    def __init__(self, view: Array, device: int) -> None:
        self._view = view
        self._device = device

    def __dlpack__(self, **_: Any) -> Any:
        """A capsule of the memory, which keeps it alive; the consumer's wishes are ignored."""
        return capsule_of(self._view, self._device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the device."""
        return self._device & 0xFFFFFFFF, self._device >> 32
