"""TensorFlow's tensors reach frameworks that pass a stream, which TensorFlow itself refuses."""

import numpy as np
import pytest
import tensorflow as tf

from loader.frameworks.array_batches import DeviceBatches
from loader.gpu.blocks import DeviceBatch, DeviceBlock
from loader.gpu.exported_tensor import ExportedTensor


class Consumer:
    """Takes an object of DLPack's protocol as PyTorch and JAX do on a GPU."""

    def __init__(self, exported):
        self.device = exported.__dlpack_device__()
        capsule = exported.__dlpack__(stream=1, max_version=(1, 0), copy=None)
        self.values = tf.experimental.dlpack.from_dlpack(capsule).numpy()


@pytest.fixture
def tensor():
    return tf.constant([[1], [2], [3]], tf.int32)


def test_a_stream_is_no_reason_to_refuse(tensor):
    with pytest.raises(RuntimeError, match="stream"):
        tensor.__dlpack__(stream=1)
    taken = Consumer(ExportedTensor(tensor))
    assert tuple(taken.device) == (1, 0)  # kDLCPU
    np.testing.assert_array_equal(taken.values, [[1], [2], [3]])


def test_numpy_takes_the_memory_itself(tensor):
    one, other = (np.from_dlpack(ExportedTensor(tensor)) for _ in range(2))
    assert one.ctypes.data == other.ctypes.data


def test_each_tensor_of_a_batch_is_converted(tensor):
    class Transport:
        def to_batch(self, batch):
            return batch.parts

    batches = DeviceBatches(
        Transport(),
        lambda each: Consumer(ExportedTensor(each)).values.tolist(),
        lambda _batch, _transport: None,
    )
    parts = ({"user": tensor, "tags": (tensor, tensor)}, tensor)
    found = batches.to_batch(DeviceBatch(parts, DeviceBlock([parts]), 0))
    expected = [[1], [2], [3]]
    assert found == ({"user": expected, "tags": (expected, expected)}, expected)
