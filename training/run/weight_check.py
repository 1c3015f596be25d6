"""Check that weights of rows are those of the outputs that are trained, one for each of their losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.private import origin
from training.run.label_values import function_of

# Losses of Keras that are not one number for each row or step. A user's own may not be either.
_OF_OTHER_SHAPE = (
    keras.losses.circle,
    keras.losses.cosine_similarity,
    keras.losses.ctc,
    keras.losses.dice,
    keras.losses.tversky,
)


def check_weights(
    model: keras.Model, weight: Any, losses: Mapping[str, Any], argument: str
) -> None:
    """Compare weights of rows with the outputs that have a loss, by name or number, and by shape.

    The outputs of a subclassed model are unknown before its first call; they are left to Keras, as are
    the shapes for losses of the user.

    Args:
        model: the model to train, whose labels have been checked.
        weight: the weights of a batch: an array (N,), (N, 1), or of steps, for all outputs; or such arrays in
            the structure of the outputs; or None.
        losses: the loss of each output, or its losses, by its name, which is "" of the only one; None for an
            output that is not trained.
        argument: the caller's name for the data.

    Raises:
        TrainingError: weights in another structure, none for an output that is trained, or of a shape that
            its losses do not have.

    Example:
        >>> model = keras.Model(x := keras.Input((7, 2)), keras.layers.Dense(1)(x))
        >>> check_weights(model, tf.ones([64]), {"": "mse"}, "train_data")
        Traceback (most recent call last):
        training.errors.TrainingError: Expected weights of shape (N, 7) or (N, 1) ... Received: (N). ...
    """
    outputs = getattr(model, "output", None)
    if outputs is None or weight is None:
        return
    tensors = (
        outputs if isinstance(outputs, Mapping) else dict(enumerate(keras.tree.flatten(outputs)))
    )
    trained = {
        key: keras.tree.flatten(loss)
        for key, loss in zip(tensors, losses.values(), strict=True)
        if loss is not None
    }
    if keras.tree.is_nested(weight):
        weights = weight if isinstance(weight, Mapping) else dict(enumerate(weight))
        if not keras.tree.is_nested(outputs) or not trained.keys() <= weights.keys():
            raise _of_other_outputs(outputs, weight, trained, argument)
    else:
        weights = dict.fromkeys(trained, weight)
    for key, output_losses in trained.items():
        functions = list(map(function_of, output_losses))
        if all(origin(f) == "keras" and f not in _OF_OTHER_SHAPE for f in functions):
            _check_shape(weights[key], tensors[key], argument)


def _of_other_outputs(
    outputs: Any, weight: Any, trained: Mapping[Any, Any], argument: str
) -> TrainingError:
    """The error of weights in another structure than the outputs that are trained."""
    hint = ""
    if keras.tree.is_nested(outputs):
        expected = trained if isinstance(outputs, Mapping) else outputs
        hint = f", or one for each output: {_shown(expected)}, of ones where all rows count alike"
    return TrainingError(
        f"Expected weights of rows in {argument} as one array{' for all outputs' if hint else ''}{hint}. "
        f"Received: {_shown(weight)}."
    )


def _shown(parts: Any) -> str:
    if isinstance(parts, Mapping):
        return f"{{{', '.join(f'{name!r}: ...' for name in parts)}}}"
    return f"({', '.join('...' for _ in parts)})"


def _check_shape(weight: Any, output: Any, argument: str) -> None:
    """Raise TrainingError unless Keras can multiply the losses of an output's rows or steps by the weights."""
    shape = tf.TensorShape(weight.shape)
    if shape.rank is None:
        return
    steps, sizes = list(output.shape)[1:-1], shape.as_list()[1:]
    if len(sizes) == len(steps) + 1 and sizes[-1] in (1, None):
        sizes.pop()
    if len(sizes) == len(steps) and all(
        size in (1, None, expected) or expected is None
        for size, expected in zip(sizes, steps, strict=True)
    ):
        return
    rows = [1] * len(steps)
    advice = (
        f" Give weights of rows that shape: tf.reshape(weights, {[-1, *rows]})." if steps else ""
    )
    raise TrainingError(
        f"Expected weights of shape {_axes(steps)}{f' or {_axes(rows)}' if steps else ' or (N, 1)'} in "
        f"{argument}, as the output of shape {_axes(output.shape[1:])} has one loss for each "
        f"{'step' if steps else 'row'}. Received: {_axes(shape.as_list()[1:])}.{advice}"
    )


def _axes(sizes: Iterable[int | None]) -> str:
    """A shape in words, with N rows."""
    return f"({', '.join(['N', *('T' if n is None else str(n) for n in sizes)])})"
