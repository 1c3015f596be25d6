"""Settings of a run, checked before Keras looks at them in a step, or after an epoch."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import keras

from training.errors import TrainingError

# Those that Keras chooses by the shapes of labels and predictions.
_BY_SHAPE = ("accuracy", "acc", "crossentropy", "ce")


def check_names(optimizer: Any, loss: Any, metrics: Sequence[Any] | None) -> list[Any]:
    """The metrics, AUC when None, after all names were seen to be Keras'.

    Raises:
        TrainingError: a name that Keras does not know; it says which ones are like it. No
            optimizer or no loss, or metrics that are no sequence.

    Example:
        >>> check_names("adam", "binary_crossentropy", ["auc", "accuracy"])
        ['auc', 'accuracy']
    """
    if optimizer is None or loss is None:
        raise TrainingError(
            f"Expected an optimizer and a loss. Received: optimizer={optimizer!r}, loss={loss!r}."
        )
    if metrics is not None and not isinstance(metrics, (list, tuple)):
        raise TrainingError(f'Expected metrics as a list, such as ["auc"]. Received: {metrics!r}.')
    _check("optimizer", optimizer, keras.optimizers.get, keras.optimizers)
    _check("loss", loss, keras.losses.get, keras.losses)
    if metrics is None:
        return [keras.metrics.AUC(name="auc")]
    for metric in metrics:
        if metric not in _BY_SHAPE:
            _check("metric", metric, keras.metrics.get, keras.metrics)
    return list(metrics)


def check_count(name: str, number: Any) -> None:
    """Raises TrainingError unless an argument is a whole number from 1."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise TrainingError(
            f"Expected {name} as a whole number from 1. Received: {name}={number!r}."
        )


def check_objects(model: Any, callbacks: Any) -> None:
    """Raises TrainingError unless they are a Keras model, and a list of Keras callbacks."""
    if not isinstance(model, keras.Model):
        raise TrainingError(f"Expected a keras.Model to train. Received: {model!r}.")
    is_list = isinstance(callbacks, (list, tuple))
    if not is_list or not all(isinstance(one, keras.callbacks.Callback) for one in callbacks):
        raise TrainingError(
            "Expected callbacks as a list of objects of keras.callbacks.Callback. "
            f"Received: {callbacks!r}."
        )


def _check(what: str, given: Any, find: Callable[[str], Any], module: ModuleType) -> None:
    if not isinstance(given, str):
        return
    try:
        find(given)
    except ValueError as error:
        known = [name for name in dir(module) if not name.startswith("_")] + list(_BY_SHAPE)
        alike = difflib.get_close_matches(given, known, n=3, cutoff=0.4)
        hint = f" Did you mean {' or '.join(alike)}?" if alike else ""
        raise TrainingError(
            f"Expected the {what} as an object of Keras or one of its names. "
            f"Received: {given!r}.{hint}"
        ) from error
