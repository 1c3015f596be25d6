"""Dense layers of a width that suits matrix units."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

# Rows of 16 bytes in 16 bits; kernels for other widths take up to three times as long.
_MULTIPLE = 8


class AlignedDense(keras.layers.Dense):
    """A dense layer that multiplies with zeros along, so that its input's width is a multiple of 8.

    It has the variables of `keras.layers.Dense` and gives the same result. XLA makes the zeros
    where it makes the input, so they cost no copy.
    """

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:  # noqa: ARG002 - Keras'
        """As `keras.layers.Dense`."""
        missing = -self.kernel.shape[0] % _MULTIPLE
        rows = [[0, 0]] * (len(inputs.shape) - 1)
        kernel = tf.pad(tf.convert_to_tensor(self.kernel), [[0, missing], [0, 0]])
        x = keras.ops.matmul(tf.pad(inputs, [*rows, [0, missing]]), kernel)
        if self.bias is not None:
            x = keras.ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)


def suits(layer: Any) -> bool:
    """Whether a layer is Keras' own dense layer, plain, and of a width that is no multiple of 8."""
    return (
        type(layer) is keras.layers.Dense
        and layer.quantization_mode is None
        and not layer.lora_enabled
        and layer.kernel.shape[0] % _MULTIPLE != 0
    )
