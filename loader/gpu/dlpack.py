"""Columns of a block as tensors over its memory, without an operation of TensorFlow for each.

On eager tensors an operation costs five microseconds, a tensor that comes in through DLPack one
and a half. numpy cuts: it works out addresses and does not look at what is there, so memory of a
GPU can pose as an array. Only the capsules that numpy makes of its views name the wrong device;
that is put right before TensorFlow sees them.
"""

from __future__ import annotations

import ctypes

import numpy as np
import tensorflow as tf
from tensorflow.experimental.dlpack import from_dlpack, to_dlpack

from loader.batches.batches import Array

_KINDS = {"CPU": 1, "GPU": 2}


# The beginning of a capsule's `DLManagedTensor`: its memory's address, and its device. Of a type of
# its own: what `ctypes.pythonapi` holds is everybody's. A ctypes structure takes longer.
_words = ctypes.PYFUNCTYPE(ctypes.POINTER(ctypes.c_int64), ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_NAME = b"dltensor"
_ADDRESS, _DEVICE = 0, 1


class _Posing:
    """A tensor's memory, under its address. Every view of it keeps the tensor alive."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor
        capsule = to_dlpack(tensor)  # owns what its words are read from
        self.__array_interface__ = {
            "data": (_words(capsule, _NAME)[_ADDRESS], False),
            "shape": tuple(tensor.shape),
            "typestr": np.dtype(tensor.dtype.as_numpy_dtype).str,
            "version": 3,
        }


def as_array(tensor: tf.Tensor) -> Array:
    """A tensor's memory as an array that may be cut, and that nobody may read if it is on a GPU.

    It waits, and with it all of Python, until the device has done what was asked of it.

    Args:
        tensor: of numbers, eager, not empty.
    """
    return np.asarray(_Posing(tensor))


def device_number(name: str) -> int:
    """DLPack's name for a device of TensorFlow.

    Args:
        name: as "/gpu:0".
    """
    device = tf.DeviceSpec.from_string(name)
    return _KINDS[device.device_type] | device.device_index << 32


def as_tensor(view: Array, device: int) -> tf.Tensor:
    """A view of what `as_array` gave as a tensor over the same memory.

    Args:
        view: contiguous, and aligned as TensorFlow's kernels need it.
        device: where the memory is; a `device_number`.
    """
    capsule = view.__dlpack__()
    _words(capsule, _NAME)[_DEVICE] = device
    return from_dlpack(capsule)
