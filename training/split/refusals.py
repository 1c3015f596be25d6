"""Models whose step cannot be split, since it would leave out code that Keras calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from training.errors import TrainingError
from training.optimizers.rows import SparseRows
from training.private import layers_of, origin, unknown_to
from training.tables.shared_table import TABLES

# The split step takes the place of these; it calls the others, such as `compute_metrics`.
_REPLACED = ("train_step", "make_train_function", "call", "compute_loss")


def expect_keras_own_step(model: keras.Model) -> None:
    """Raise TrainingError if a part of the training step is the user's."""
    methods = [
        name for name in _REPLACED if origin(getattr(model, name)) not in ("keras", "training")
    ]
    if methods:
        raise TrainingError(
            f"Expected a model with Keras' own {', '.join(_REPLACED)}, to split its step. "
            f"Received: {model.name!r} of {type(model).__name__}, which defines {', '.join(methods)}. "
            "Use split=False, if there is one worker."
        )


def expect_one_loss(model: keras.Model, loss: Any) -> None:
    """Raise TrainingError for several losses of one output: Keras silently uses the first alone.

    It adds them up if both output and losses are by name.
    """
    output, losses = getattr(model, "output", None), keras.tree.flatten(loss)
    by_name = isinstance(output, Mapping) and isinstance(loss, Mapping)
    if output is None or len(keras.tree.flatten(output)) > 1 or by_name or len(losses) == 1:
        return
    raise TrainingError(
        f"Expected one loss, as the model has one output. Received: {losses!r}. Give a function that "
        "returns their sum: lambda y, y_pred: keras.losses.binary_crossentropy(y, y_pred) "
        "+ keras.losses.mean_squared_error(y, y_pred)."
    )


def expect_scalable(model: keras.Model, optimizer: keras.Optimizer) -> None:
    """Raise TrainingError for a fixed scale of the loss, by which Keras cannot divide the gradient of rows."""
    if optimizer.loss_scale_factor is None or isinstance(optimizer, SparseRows):
        return
    if any(isinstance(layer, TABLES) and layer.trainable_weights for layer in layers_of(model)):
        raise TrainingError(
            "Expected an optimizer of training.optimizers for a loss_scale_factor, as Keras' own cannot divide "
            f"the gradient of a table's rows by it. Received: {type(optimizer).__name__}, for a model with "
            "tables. Leave it out, or scale the loss by keras.optimizers.LossScaleOptimizer(optimizer)."
        )


def expect_no_losses(found: Sequence[object]) -> None:
    """Raise TrainingError if layers up to the lookups have losses of their own."""
    if found:
        raise TrainingError(
            "Expected no losses (activity_regularizer, add_loss) of layers up to the lookups, to "
            f"split the step. Received: {len(found)}. Use split=False, if there is one worker."
        )


def expect_no_assignments(tower: keras.Model) -> None:
    """Raise TrainingError if a layer of Keras assigns what the step cannot: trained weights, or unknown state."""
    layers = layers_of(tower)
    normalized = [x.name for x in layers if isinstance(x, keras.layers.SpectralNormalization)]
    if normalized:
        raise _assigned(normalized)
    if stateful := [layer.name for layer in layers if getattr(layer, "stateful", False)]:
        raise _unknown(f"{', '.join(stateful)} with stateful=True")


def expect_known(state: Sequence[keras.Variable], scope: keras.StatelessScope) -> None:
    """Raise TrainingError if a layer has assigned a variable that is not among these: it would be lost."""
    if scope.state_mapping.keys() - {id(variable) for variable in state}:
        raise _unknown(
            "one that assigns another, such as the seed of keras.random, which calls without a seed have in "
            "common: give them a keras.random.SeedGenerator that is an attribute of the layer"
        )


def expect_not_assigned(
    weights: Sequence[keras.Variable], values: Sequence[object], scope: keras.StatelessScope
) -> None:
    """Raise TrainingError if a layer has assigned a weight that is trained.

    Args:
        weights: variables.
        values: their values at the step's begin.
        scope: in which the layers were called.
    """
    assigned = [
        weight.path
        for weight, value in zip(weights, values, strict=True)
        if scope.get_current_value(weight) is not value
    ]
    if assigned:
        raise _assigned(assigned)


def expect_sums(model: keras.Model, update: Callable[[], object]) -> None:
    """Raise TrainingError if a metric's state is no sum over batches, as a maximum, which workers cannot add up.

    Args:
        model: a model whose metrics are made.
        update: adds one and the same batch to the metrics.
    """
    states = [[variable.numpy() for variable in model.metrics_variables]]
    for _ in range(2):
        update()
        states.append([variable.numpy() for variable in model.metrics_variables])
    with np.errstate(invalid="ignore"):  # infinity less infinity
        unequal = {
            id(variable)
            for variable, (start, once, twice) in zip(
                model.metrics_variables, zip(*states, strict=True), strict=True
            )
            if not np.allclose(twice - once, once - start, rtol=1e-3, equal_nan=True)
        }
    names = [
        f"{metric.name!r} of {type(metric).__name__}"
        for group in model.metrics
        for metric in getattr(group, "metrics", [group])
        if any(id(variable) in unequal for variable in metric.variables)
    ]
    if unequal:
        raise TrainingError(
            "Expected metrics whose state is a sum over batches, since several workers add up what each has "
            f"counted. Received: {', '.join(names)}, whose state changes otherwise, as a maximum or a moving "
            "average does. Leave it out, and compute it after training with one process."
        )


def expect_state(optimizer: keras.Optimizer, variables: Sequence[keras.Variable]) -> None:
    """Raise TrainingError if an optimizer was built for other variables."""
    if unknown := unknown_to(optimizer, variables):
        rest = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise TrainingError(
            "Expected an optimizer that is new, or was built for all weights that are trained now. "
            f"Received: {type(optimizer).__name__}, built without {unknown[0].path}{rest}: for "
            "another model, or while these weights were frozen. Make a new optimizer, and compile."
        )


def _assigned(names: Sequence[str]) -> TrainingError:
    return TrainingError(
        "Expected layers that do not assign weights that are trained, to split the step. "
        f"Received: {', '.join(names)}. Use split=False, if there is one worker."
    )


def _unknown(received: str) -> TrainingError:
    return TrainingError(
        "Expected layers that assign only variables of model.variables, to split the step. "
        f"Received: {received}. Use split=False, if there is one worker."
    )
