"""Tensors over the memory of others: the right values, device and alignment, alive while used."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from loader.batches.batches import Dense
from loader.gpu.dlpack import as_array, as_tensor, device_number

HERE = device_number("/cpu:0")


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint32"])
def test_a_view_has_the_bits_of_its_part(dtype):
    bits = np.random.default_rng(0).integers(-(2**31), 2**31, (3, 5, 64, 1)).astype(np.int32)
    array = as_array(tf.bitcast(bits, tf.float32)).view(dtype)
    tensor = as_tensor(array[1, 2], HERE)
    assert (tensor.shape, tensor.dtype.name) == ((64, 1), dtype)
    np.testing.assert_array_equal(tensor.numpy(), bits[1, 2].view(dtype))


def test_a_view_keeps_the_memory_and_nothing_else_does():
    source = tf.random.normal((4, 64, 1))
    expected = source[1].numpy()
    memory = weakref.ref(source)
    view = as_tensor(as_array(source)[1], HERE)
    same = tf.reshape(view, [-1])  # the same memory, and Python knows nothing of it
    del source, view
    gc.collect()
    assert memory() is not None
    np.testing.assert_array_equal(same, expected[:, 0])
    del same
    gc.collect()
    assert memory() is None


def test_a_view_says_on_which_device_it_is():
    array = as_array(tf.zeros((64, 1)))
    assert as_tensor(array, HERE).device.endswith("CPU:0")
    with pytest.raises(tf.errors.InvalidArgumentError, match="GPU:7"):
        as_tensor(array, device_number("/gpu:7"))


@pytest.mark.parametrize(
    ("start", "batch_size", "is_view"), [(0, 16, True), (0, 7, False), (1, 16, False)]
)
def test_batches_are_aligned_and_copied_only_for_that(start, batch_size, is_view):
    memory = np.empty(4 * 200, np.uint8)
    first = -memory.ctypes.data % 64
    rows = memory[first : first + 4 * 170].view(np.int32)[start:, None]
    rows[:] = np.arange(len(rows))[:, None]
    (runs,) = Dense(rows).batches(batch_size)
    batches = list(runs)
    assert all(batch.ctypes.data % 64 == 0 for batch in batches)
    np.testing.assert_array_equal(np.concatenate(batches), rows)
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(rows) // batch_size)
    assert np.shares_memory(batches[1], memory) is is_view
