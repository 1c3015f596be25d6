"""Products of each pair of a row's vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.errors import TrainingError
from training.tables.initial_table import initializer_of
from workflow.schema.own_names import OwnNames

INTERACTIONS = (None, "field_all", "field_each", "field_interaction")


@keras.saving.register_keras_serializable(package="parquet_to_triton")
class DotProductInteraction(keras.layers.Layer, metaclass=OwnNames):
    """The dot product of each pair of vectors, as in DLRM, or a bilinear form of each pair.

    Pairs (i, j) with i < j come in the order of NVTabular: (0, 1), (0, 2), ..., (1, 2), ...

    Sources: M. Naumov et al., Deep Learning Recommendation Model for Personalization and
    Recommendation Systems, 2019; for the bilinear forms T. Huang et al., FiBiNET, RecSys 2019.

    Args:
        interaction_type: None for the dot product v_i v_j; for the bilinear form v_i W v_j
            "field_all" (one matrix W), "field_each" (v_j W_i v_i: a matrix for each i, of which the
            last is used only with `self_interaction`) or "field_interaction" (one for each pair).
        self_interaction: whether to include the pairs (i, i).
        kernel_initializer: a Keras initializer for the matrices.
        **kwargs: arguments of `keras.layers.Layer`.

    Input shape: (N, vectors, width).

    Output shape: (N, pairs), where pairs = vectors * (vectors - 1) / 2, and with
    `self_interaction` vectors * (vectors + 1) / 2.

    Raises:
        TrainingError: an unknown interaction, or an input of another shape.

    Example:
        >>> DotProductInteraction()(tf.constant([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])).numpy()
        array([[11., 17., 39.]], dtype=float32)
    """

    def __init__(
        self,
        interaction_type: str | None = None,
        self_interaction: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if interaction_type not in INTERACTIONS:
            raise TrainingError(
                f"Expected an interaction_type among {', '.join(map(str, INTERACTIONS))}. "
                f"Received: {interaction_type!r}."
            )
        self.interaction_type = interaction_type
        self.self_interaction = self_interaction
        self.kernel_initializer = initializer_of(kernel_initializer)

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Create the matrices, if any."""
        if len(input_shape) != 3 or None in input_shape[1:]:
            raise TrainingError(
                f"Expected an input of shape (N, vectors, width) for {self.name!r}. "
                f"Received: {tuple(input_shape)}. Use DenseFeatures(..., aggregation='stack')."
            )
        _, vectors, width = input_shape
        self._first, self._second = np.triu_indices(vectors, 0 if self.self_interaction else 1)
        if not len(self._first):
            # A dense layer over no columns would abort the process, in oneDNN.
            raise TrainingError(
                f"Expected at least two vectors a row for {self.name!r}, since it takes products of "
                f"pairs. Received: {vectors}. Use self_interaction=True, or another model."
            )
        count = {"field_each": (vectors,), "field_interaction": (len(self._first),)}
        if self.interaction_type is not None:
            self.kernel = self.add_weight(
                name="kernel",
                shape=(*count.get(self.interaction_type, ()), width, width),
                initializer=self.kernel_initializer,
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The products; see the class."""
        if self.interaction_type is None:
            return _products(inputs, inputs, self._first, self._second)
        kernel = tf.convert_to_tensor(self.kernel)
        if self.interaction_type == "field_interaction":
            first = tf.gather(inputs, self._first, axis=1)
            second = tf.gather(inputs, self._second, axis=1)
            return tf.einsum("npd,pde,npe->np", first, kernel, second)
        matrices = "fed" if self.interaction_type == "field_each" else "de"
        left = tf.einsum(f"nfd,{matrices}->nfe", inputs, kernel)
        return _products(left, inputs, self._first, self._second)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, int]:
        """(N, pairs)."""
        vectors = input_shape[1] or 0
        return (input_shape[0], vectors * (vectors + (1 if self.self_interaction else -1)) // 2)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            **super().get_config(),
            "interaction_type": self.interaction_type,
            "self_interaction": self.self_interaction,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _products(
    left: tf.Tensor, right: tf.Tensor, first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]
) -> tf.Tensor:
    """The products of left[:, first] and right[:, second], as one matrix product for each row."""
    count = left.shape[1]
    # The output index of each pair; unwanted pairs take the zero that is appended.
    places = np.full((count, count), len(first))
    places[first, second] = np.arange(len(first))

    @tf.custom_gradient
    def products(
        left: tf.Tensor, right: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        every = tf.reshape(tf.matmul(left, right, transpose_b=True), [-1, count * count])

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # TensorFlow's own gradient of gather scatters, which is slow.
            padded = tf.pad(upstream, [[0, 0], [0, 1]])
            spread = tf.reshape(tf.gather(padded, places.ravel(), axis=1), [-1, count, count])
            return tf.matmul(spread, right), tf.matmul(spread, left, transpose_a=True)

        return tf.gather(every, first * count + second, axis=1), gradient

    return products(left, right)
