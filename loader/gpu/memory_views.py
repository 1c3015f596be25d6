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

from loader.batches import Array

_KINDS = {"CPU": 1, "GPU": 2}


class _Header(ctypes.Structure):
    """The beginning of DLPack's `DLManagedTensor`."""

    _fields_ = (("address", ctypes.c_void_p), ("device", ctypes.c_int64))


# Of a type of its own: what `ctypes.pythonapi` holds is everybody's.
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _header(capsule: object) -> _Header:
    return _Header.from_address(_pointer(capsule, b"dltensor"))


class _Posing:
    """A tensor's memory, under its address. Every view of it keeps the tensor alive."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor
        capsule = to_dlpack(tensor)  # owns what its header is read from
        self.__array_interface__ = {
            "data": (_header(capsule).address, False),
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
    """What DLPack's capsules call a device of TensorFlow.

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
    _header(capsule).device = device
    return from_dlpack(capsule)
