"""The split training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.split.cut import cut
from training.split.precision import with_policy


class _Result(NamedTuple):
    """What the tower's part of a step gives back; nothing is assigned in it."""

    loss: tf.Tensor
    outputs: Any
    border_gradients: list[tf.Tensor | None]
    gradients: list[tf.Tensor | None]
    updates: Mapping[str, tf.Tensor]


class SplitStep:
    """A `train_step` of a Keras model in two parts.

    Tables are gathered from and scattered to by TensorFlow's own kernels. The dense layers,
    forward and backward, are one function that XLA compiles: it takes the looked-up vectors and
    gives back the loss, the predictions and the gradients, also those of the vectors. It assigns
    nothing, since XLA's scatter on repeated ids is slow, and so is compiling assignments.

    XLA compiles for each batch size anew. Only the largest batch size that came along is compiled
    for; a smaller batch, as the last of an epoch, is computed without XLA.

    Args:
        model: a compiled functional or sequential model.
        policy: the dtype policy of the dense layers in training, None for their own.
        xla: whether to compile the dense part.

    Raises:
        TrainingError: the model cannot be split.
    """

    def __init__(self, model: keras.Model, policy: str | None, xla: bool) -> None:
        self.model = model
        self.parts = cut(model)
        self._check()
        tower = self.parts.tower
        self._target = tower if policy is None else with_policy(tower, policy)
        self._plain = tf.function(self._tower, autograph=False)
        self._compiled = tf.function(self._tower, autograph=False, jit_compile=True)
        self._xla = xla
        with tf.device("/cpu:0"):
            self._largest = tf.Variable(0, trainable=False, dtype=tf.int64)

    def _check(self) -> None:
        regularized = [
            variable.path
            for variable in self.parts.lookup.trainable_variables
            if variable.regularizer is not None
        ]
        if regularized:
            raise TrainingError(
                "Expected tables without a regularizer to split the step, since it would read "
                f"whole tables. Received: one on {', '.join(regularized)}. Use split=False."
            )
        if tf.distribute.has_strategy():
            raise TrainingError(
                "Expected no tf.distribute strategy to split the step. Received: "
                f"{tf.distribute.get_strategy()!r}. Use split=False."
            )

    def __call__(self, data: Any) -> Mapping[str, Any]:
        """Trains on one batch; the metrics so far."""
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        tables = self.parts.lookup.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for table in tables:
                tape.watch(table.value)
            border = keras.tree.flatten(self.parts.lookup(x, training=True))
        result = self._run(border, y, weight)
        gradients = dict(
            zip(_keys(self.parts.tower.trainable_variables), result.gradients, strict=True)
        )
        given = [
            pair
            for pair in zip(border, result.border_gradients, strict=True)
            if pair[1] is not None
        ]
        if tables:
            sources = [table.value for table in tables]
            found = tape.gradient(
                [tensor for tensor, _ in given],
                sources,
                output_gradients=[gradient for _, gradient in given],
            )
            gradients |= dict(zip(_keys(tables), found, strict=True))
        self._assign(result.updates)
        variables = self.model.trainable_variables
        self.model.optimizer.apply([gradients[key] for key in _keys(variables)], variables)
        self._track_loss(result.loss, border[0])
        return self.model.compute_metrics(x, y, result.outputs, sample_weight=weight)

    def _run(self, border: Sequence[tf.Tensor], y: Any, weight: Any) -> _Result:
        if not self._xla:
            return self._plain(border, y, weight)
        size = tf.shape(border[0], tf.int64)[0]
        largest = self._largest.assign(tf.maximum(self._largest, size))
        return tf.cond(
            tf.equal(size, largest),
            lambda: self._compiled(border, y, weight),
            lambda: self._plain(border, y, weight),
        )

    def _tower(self, border: Sequence[tf.Tensor], y: Any, weight: Any) -> _Result:
        own, target = self.parts.tower, self._target
        trainable = [tf.convert_to_tensor(variable.value) for variable in own.trainable_variables]
        state = [tf.convert_to_tensor(variable.value) for variable in own.non_trainable_variables]
        # The regularizers of the model's losses look at its own variables.
        mapping = [
            pair
            for part in (own, target)
            for pair in (
                *zip(part.trainable_variables, trainable, strict=True),
                *zip(part.non_trainable_variables, state, strict=True),
            )
        ]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*trainable, *(tensor for tensor in border if tensor.dtype.is_floating)])
            with keras.StatelessScope(mapping, collect_losses=True) as scope:
                outputs = target(border, training=True)
                outputs = keras.tree.map_structure(
                    lambda value, spec: tf.cast(value, spec.dtype), outputs, own.output
                )
                loss = self.model.compute_loss(
                    y=y, y_pred=outputs, sample_weight=weight, training=True
                )
                if target is not own:
                    # Of layers' activities: the model does not know those of copied layers.
                    loss += sum(tf.reduce_sum(tf.cast(part, loss.dtype)) for part in scope.losses)
                scaled = self.model.optimizer.scale_loss(loss)
        border_gradients, gradients = tape.gradient(scaled, (list(border), trainable))
        updates = {
            str(number): value
            for number, variable in enumerate(self._state())
            if (value := scope.get_current_value(variable)) is not None
        }
        return _Result(loss, outputs, border_gradients, gradients, updates)

    def _state(self) -> list[keras.Variable]:
        """What a step may change besides weights: moving averages, seeds, metrics of losses."""
        return [*self._target.non_trainable_variables, *self.model.metrics_variables]

    def _assign(self, updates: Mapping[str, tf.Tensor]) -> None:
        own = [*self.parts.tower.non_trainable_variables, *self.model.metrics_variables]
        for number, value in updates.items():
            own[int(number)].assign(value)

    def _track_loss(self, loss: tf.Tensor, batch: tf.Tensor) -> None:
        tracker = next(metric for metric in self.model.metrics if metric.name == "loss")
        tracker.update_state(loss, sample_weight=tf.shape(batch)[0])


def _keys(variables: Sequence[keras.Variable]) -> list[int]:
    return [id(variable) for variable in variables]
