"""Gradients that are rows of a table: the base of this package's optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from training.errors import TrainingError
from training.optimizers.distinct import distinct_rows
from training.private import states_of
from training.sharding.layout import assign_own, layout_of, set_layout
from workflow.schema.own_names import OwnNames


class SparseRows(metaclass=OwnNames):
    """Mixin for a Keras optimizer that passes gradients of tables to `update_rows`.

    The gradients of a row that occurs several times in a batch are summed first, as in a dense
    gradient, since updates are not linear in them. (Keras itself does not sum them, so that its
    Adagrad and its clipping give other results with TensorFlow than with its other backends.)
    """

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    _trainable_variables: list[Any]
    variables: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.gradient_accumulation_steps:
            raise TrainingError(
                "Expected an optimizer for sparse rows without gradient_accumulation_steps, which "
                f"would hold a whole gradient of each table. Received: "
                f"{self.gradient_accumulation_steps}. Use a larger batch."
            )

    def build(self, variables: Any) -> None:
        """Create the state; the state of a divided table is divided too."""
        super().build(variables)  # type: ignore[misc]
        for variable in variables:
            if layout_of(variable) is not None:
                for state in states_of(self, variable):
                    set_layout(state, layout_of(variable))

    def load_own_variables(self, store: Any) -> None:
        """Set the state from a file; of divided tables this worker's part.

        Raises:
            ValueError: the file has state of other shapes.
        """
        is_divided = any(layout_of(variable) is not None for variable in self.variables)
        if not is_divided or len(store.keys()) != len(self.variables):
            super().load_own_variables(store)  # type: ignore[misc]
            return
        for number, variable in enumerate(self.variables):
            layout, saved = layout_of(variable), store[str(number)]
            if layout is None:
                variable.assign(saved)
            elif tuple(saved.shape) != layout.whole:
                raise ValueError(f"state of shape {layout.whole} expected, {saved.shape} found")
            else:
                assign_own(variable, layout, saved)

    def save_own_variables(self, store: Any) -> None:
        """Write the state to a file.

        Raises:
            TrainingError: this worker has a part of it only.
        """
        if any(layout_of(variable) is not None for variable in self.variables):
            raise TrainingError(
                f"Expected the whole state of {type(self).__name__}, to save it. Received: a part, since it is "
                "divided among the workers. Do so in `with training.whole_tables(model):`, without optimizer=False."
            )
        super().save_own_variables(store)  # type: ignore[misc]

    @property
    def linear(self) -> bool:
        """Whether the update itself can sum the gradients of a repeated row."""
        return False

    @property
    def _clips(self) -> bool:
        return any((self.clipnorm, self.clipvalue, self.global_clipnorm))

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> None:
        """Apply gradients, as in Keras."""
        scale = self.loss_scale_factor
        grads = [None if grad is None else divided(grad, scale) for grad in grads]
        if self._clips or not self.linear:
            if trainable_variables is not None:
                trainable_variables = list(trainable_variables)
            tables = trainable_variables or self._trainable_variables
            if len(tables) == len(grads):  # otherwise Keras raises the error
                grads = [
                    distinct_rows(grad, table) if isinstance(grad, tf.IndexedSlices) else grad
                    for grad, table in zip(grads, tables, strict=True)
                ]
        # Keras would divide by it again, and cannot divide rows.
        self.loss_scale_factor = None
        try:
            super().apply(grads, trainable_variables)  # type: ignore[misc]
        finally:
            self.loss_scale_factor = scale

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Clip as Keras does, but only the values of rows: every other row's gradient is zero."""
        values = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
        clipped = super()._clip_gradients(values)  # type: ignore[misc]
        return [
            tf.IndexedSlices(value, grad.indices, grad.dense_shape)
            if isinstance(grad, tf.IndexedSlices)
            else value
            for grad, value in zip(grads, clipped, strict=True)
        ]

    def update_step(self, gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        """Update as Keras does, or the rows alone."""
        if isinstance(gradient, tf.IndexedSlices):
            if not self.linear and tf.distribute.get_strategy().num_replicas_in_sync > 1:
                gradient = distinct_rows(gradient, variable)  # each replica has summed its own
            values = tf.cast(gradient.values, variable.dtype)
            rate = tf.cast(learning_rate, variable.dtype)
            self.update_rows(variable, gradient.indices, values, rate)
        else:
            super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]

    def update_rows(
        self, variable: tf.Variable, rows: tf.Tensor, gradient: tf.Tensor, rate: tf.Tensor
    ) -> None:
        """Update rows of a variable and of its state.

        Args:
            variable: a table.
            rows: distinct, unless the optimizer is `linear`.
            gradient: gradient of these rows.
            rate: the learning rate.
        """
        raise NotImplementedError


def divided(gradient: Any, scale: float | None) -> Any:
    """A gradient, dense or sparse, divided by a loss scale."""
    if scale is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / scale, gradient.indices, gradient.dense_shape)
    return gradient / scale
