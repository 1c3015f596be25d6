"""Dense layers that compute faster than Keras' own, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

# Rows of 16 bytes in 16 bits; GPU kernels for other widths take up to three times as long.
_MULTIPLE = 8


class XlaDense(keras.layers.Dense):
    """A dense layer that XLA compiles to fewer passes over memory than Keras' own.

    - The input is padded with zeros to a width that is a multiple of 8; XLA writes the zeros
      together with the input, without a copy.
    - The gradient of relu is masked by its result. By its input, as XLA would simplify it, the input
      has to be kept as well, and relu cannot be computed by the product that makes it.
    - One unit is a sum over products: XLA computes it, and its gradients, together with what makes
      and takes the input, where a product would need the input in the layer's dtype.
    """

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:  # noqa: ARG002 - Keras'
        """The outputs that `keras.layers.Dense` has."""
        kernel = tf.convert_to_tensor(self.kernel)
        if self.units == 1:
            x = tf.reduce_sum(inputs * kernel[:, 0], axis=-1, keepdims=True)
        else:
            missing = -kernel.shape[0] % _MULTIPLE
            rows = [[0, 0]] * (len(inputs.shape) - 1)
            x = keras.ops.matmul(
                tf.pad(inputs, [*rows, [0, missing]]), tf.pad(kernel, [[0, missing], [0, 0]])
            )
        if self.bias is not None:
            x = keras.ops.add(x, self.bias)
        return _relu(x) if self.activation is keras.activations.relu else self.activation(x)


@tf.custom_gradient
def _relu(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    y = tf.nn.relu(x)
    return y, lambda upstream: tf.where(tf.not_equal(y, 0), upstream, tf.zeros_like(upstream))


class HostDense(keras.layers.Dense):
    """A dense layer for TensorFlow's own kernels on a CPU.

    If its input is a concatenation of parts, such as vectors of tables and numbers, it multiplies
    the widest part separately: forward, that part is not copied; backward, its gradient is not
    sliced out of another; and oneDNN is fast for its width. The bias is a row of the other parts'
    kernel.
    """

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:
        """The outputs that `keras.layers.Dense` has."""
        parts = concatenated(inputs)
        widths = [part.shape[1] for part in parts]
        # Several products of medium size take longer than one.
        if len(parts) == 1 or 2 * max(widths) < sum(widths):
            return super().call(inputs, training=training)
        kernels = tf.split(tf.convert_to_tensor(self.kernel), widths, axis=0)
        widest = widths.index(max(widths))
        x = tf.matmul(parts.pop(widest), kernels.pop(widest))
        if self.bias is not None:
            parts.append(tf.ones_like(parts[0][:, :1]))
            kernels.append(tf.convert_to_tensor(self.bias)[tf.newaxis])
        x += tf.matmul(tf.concat(parts, axis=1), tf.concat(kernels, axis=0))
        return self.activation(x)


def concatenated(tensor: tf.Tensor) -> list[tf.Tensor]:
    """The parts that the graph concatenated into a matrix; or the tensor itself.

    Gradients then bypass the matrix. A caller that wants the gradient of the matrix has to pass it
    to a separate function, in whose graph it is an input.
    """
    in_graph = isinstance(tensor, tf.Tensor) and not tf.executing_eagerly()
    if not in_graph or tensor.graph is not tf.compat.v1.get_default_graph():
        return [tensor]
    operation = tensor.op
    if operation.type == "Cast":  # of mixed precision
        parts = concatenated(operation.inputs[0])
        return [tf.cast(part, tensor.dtype) for part in parts] if len(parts) > 1 else [tensor]
    if operation.type != "ConcatV2" or tf.get_static_value(operation.inputs[-1]) not in (1, -1):
        return [tensor]
    parts = list(operation.inputs)[:-1]
    return parts if all(len(part.shape) == 2 and part.shape[1] for part in parts) else [tensor]


def faster_dense(layer: Any, xla: bool) -> type[keras.layers.Dense] | None:
    """The class that computes faster than Keras' own dense layer, if there is one."""
    if (
        type(layer) is not keras.layers.Dense
        or layer.quantization_mode is not None
        or layer.lora_enabled
    ):
        return None
    return XlaDense if xla else HostDense
