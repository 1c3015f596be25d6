"""The cross network of DCN-v2."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.tables.initial_table import initializer_of
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import whole_number


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class CrossNetwork(keras.layers.Layer, metaclass=OwnNames):
    """Products of the input with linear functions of itself: x_(l+1) = x_0 * (W x_l + b) + x_l.

    Source: R. Wang et al., DCN V2: Improved Deep & Cross Network, WWW 2021.

    Args:
        depth: the number of such layers; l layers make polynomials of degree l + 1.
        rank: rank of the matrices W = U V, for less computation; None for full matrices.
        kernel_initializer: a Keras initializer for the matrices.
        **kwargs: arguments of `keras.layers.Layer`.

    Input and output shape: (N, width).

    Raises:
        TrainingError: a depth or rank below one, or an input of another shape.

    Example:
        >>> CrossNetwork(3, rank=8)(tf.ones((2, 40))).shape
        TensorShape([2, 40])
    """

    def __init__(
        self,
        depth: int = 3,
        rank: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.depth = whole_number("depth", depth, 1, TrainingError)
        self.rank = None if rank is None else whole_number("rank", rank, 1, TrainingError)
        self.kernel_initializer = initializer_of(kernel_initializer)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create the weights."""
        if len(input_shape) != 2 or input_shape[1] is None:
            raise TrainingError(
                f"Expected an input of shape (N, width) for {self.name!r}. "
                f"Received: {tuple(input_shape)}."
            )
        width = input_shape[1]
        shapes = [(width, width)] if self.rank is None else [(width, self.rank), (self.rank, width)]
        self.kernels = [
            [
                self.add_weight(
                    name=f"kernel_{layer}_{part}",
                    shape=shape,
                    initializer=self.kernel_initializer.clone(),
                )
                for part, shape in enumerate(shapes)
            ]
            for layer in range(self.depth)
        ]
        self.biases = [
            self.add_weight(name=f"bias_{layer}", shape=(width,), initializer="zeros")
            for layer in range(self.depth)
        ]

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The crossed features; see the class."""
        crossed = inputs
        for kernels, bias in zip(self.kernels, self.biases, strict=True):
            linear = crossed
            for kernel in kernels:
                linear = tf.matmul(linear, tf.convert_to_tensor(kernel))
            crossed += inputs * (linear + bias)
        return crossed

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Shape of the output, equal to that of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "depth": self.depth,
            "rank": self.rank,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
