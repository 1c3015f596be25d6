"""A layer of xDeepFM's compressed interaction network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.tables.initial_table import initializer_of
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import whole_number


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class XDeepFMOuterProduct(keras.layers.Layer, metaclass=OwnNames):
    """Weighted sums of the elementwise products of two stacks of vectors.

    out[n, k] = sum over i, j of kernel[k, i, j] * x0[n, i] * x[n, j], elementwise over the width. A
    stack of these layers, all with the same x0, is the compressed interaction network.

    Source: J. Lian et al., xDeepFM, KDD 2018, equation 6.

    Args:
        dim: the number of output vectors.
        kernel_initializer: a Keras initializer for the weights.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: a pair x0 (N, i, width), x (N, j, width).

    Output shape: (N, dim, width).

    Raises:
        TrainingError: a dim below one, or inputs of another shape.

    Example:
        >>> x = tf.ones((2, 5, 4))
        >>> XDeepFMOuterProduct(3)((x, x)).shape
        TensorShape([2, 3, 4])
    """

    def __init__(self, dim: int, kernel_initializer: Any = "glorot_uniform", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = whole_number("dim", dim, 1, TrainingError)
        self.kernel_initializer = initializer_of(kernel_initializer)

    def build(self, input_shape: Sequence[Any]) -> None:
        """Create the weights."""
        if len(input_shape) != 2 or any(len(shape) != 3 for shape in input_shape):
            raise TrainingError(
                f"Expected a pair of inputs (N, vectors, width) for {self.name!r}. "
                f"Received: {input_shape}."
            )
        (_, first, width), (_, second, other) = input_shape
        if width != other:
            raise TrainingError(
                f"Expected vectors of one width for {self.name!r}. Received: {width} and {other}."
            )
        # Created as a matrix, since initializers scale by the two sides of a matrix.
        self.kernel = self.add_weight(
            name="kernel", shape=(first * second, self.dim), initializer=self.kernel_initializer
        )

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """The sums; see the class."""
        first, second = inputs
        kernel = tf.reshape(
            tf.convert_to_tensor(self.kernel), [first.shape[1], second.shape[1], self.dim]
        )
        return tf.einsum("niw,njw,ijk->nkw", first, second, kernel)

    def compute_output_shape(self, input_shape: Sequence[Any]) -> tuple[Any, int, Any]:
        """(N, dim, width)."""
        return (input_shape[0][0], self.dim, input_shape[0][2])

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "dim": self.dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
