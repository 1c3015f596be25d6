"""Dense layers for inputs of a width that kernels are slow with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

# Rows of 16 bytes in 16 bits; kernels for other widths take up to three times as long on a GPU.
_MULTIPLE = 8


class _OtherDense(keras.layers.Dense):
    """With the variables and the result of `keras.layers.Dense`, and a product of its own."""

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:  # noqa: ARG002 - Keras'
        """As `keras.layers.Dense`."""
        x = self.product(inputs, tf.convert_to_tensor(self.kernel))
        if self.bias is not None:
            x = keras.ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """The inputs times the kernel."""
        raise NotImplementedError


class AlignedDense(_OtherDense):
    """A dense layer that multiplies with zeros along, so that its input's width is a multiple of 8.

    For XLA, which makes the zeros where it makes the input, so they cost no copy.
    """

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Of both, widened."""
        missing = -kernel.shape[0] % _MULTIPLE
        rows = [[0, 0]] * (len(inputs.shape) - 1)
        return keras.ops.matmul(
            tf.pad(inputs, [*rows, [0, missing]]), tf.pad(kernel, [[0, missing], [0, 0]])
        )


class TurnedDense(_OtherDense):
    """A dense layer that has its kernel's gradient multiplied the other way round.

    For oneDNN on a CPU, which takes a quarter longer where the inputs are the operand that is
    turned and their width is odd.
    """

    def product(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """With another gradient."""
        if len(inputs.shape) != 2:
            return keras.ops.matmul(inputs, kernel)
        return _turned(inputs, kernel)


@tf.custom_gradient
def _turned(
    inputs: tf.Tensor, kernel: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_inputs = tf.matmul(upstream, kernel, transpose_b=True)
        return of_inputs, tf.transpose(tf.matmul(upstream, inputs, transpose_a=True))

    return tf.matmul(inputs, kernel), gradient


def faster_dense(layer: Any, xla: bool) -> type[keras.layers.Dense] | None:
    """The class that computes faster than Keras' own, plain dense layer, if there is one.

    Args:
        layer: any, built.
        xla: whether XLA compiles it.
    """
    if (
        type(layer) is not keras.layers.Dense
        or layer.quantization_mode is not None
        or layer.lora_enabled
        or layer.kernel.shape[0] % _MULTIPLE == 0
    ):
        return None
    if xla:
        return AlignedDense
    width, units = layer.kernel.shape
    return TurnedDense if width > units else None
