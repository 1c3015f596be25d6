"""Checks of a run's settings, before Keras reads them in a step or after an epoch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import keras

from training.errors import TrainingError

# Metrics that Keras chooses by the shapes of labels and predictions.
_USUAL = {
    "optimizer": ("adam", "adagrad", "sgd"),
    "loss": ("binary_crossentropy", "mean_squared_error"),
    "metric": ("auc", "accuracy"),
}
# Functions of Keras' modules, and base classes.
_NO_CHOICES = ("get", "serialize", "deserialize", "loss", "metric", "optimizer", "mean", "sum")
# Positions before each word of a class name, where Keras puts an underscore.
_SNAKE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BY_SHAPE = ("accuracy", "acc", "crossentropy", "ce")


def check_names(
    optimizer: Any, loss: Any, metrics: Sequence[Any] | None, outputs: int = 1
) -> list[Any]:
    """Check all names, and return the metrics; AUC when `metrics` is None.

    Each output of a model with several outputs has all of the metrics.

    Args:
        optimizer: an optimizer or its name.
        loss: a loss or its name.
        metrics: metrics or their names.
        outputs: how many outputs the model has.

    Raises:
        TrainingError: a name that Keras does not know, with similar names; no optimizer or no loss;
            or metrics that are not a sequence.

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
        metrics = [keras.metrics.AUC(name="auc")]
    for metric in metrics:
        if metric not in _BY_SHAPE:
            _check("metric", metric, keras.metrics.get, keras.metrics)
    return list(metrics) if outputs == 1 else [[*map(_another, metrics)] for _ in range(outputs)]


def _another(metric: Any) -> Any:
    """A new metric of the same kind, since one object cannot count for two outputs."""
    if not isinstance(metric, keras.metrics.Metric):
        return metric
    return type(metric).from_config(metric.get_config())


def check_count(name: str, number: Any) -> None:
    """Raise TrainingError unless an argument is a whole number from 1."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise TrainingError(
            f"Expected {name} as a whole number from 1. Received: {name}={number!r}."
        )


def check_objects(model: Any, callbacks: Any) -> None:
    """Raise TrainingError unless they are a Keras model, and a list of Keras callbacks."""
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
        alike = difflib.get_close_matches(given.lower(), _names(what, find, module), n=3)
        names = " or ".join(map(repr, alike or _USUAL[what]))
        hint = f"Did you mean {names}?" if alike else f"Usual are {names}."
        raise TrainingError(
            f"Expected the {what} as an object of Keras or one of its names. "
            f"Received: {given!r}. {hint}"
        ) from error


def _names(what: str, find: Callable[[str], Any], module: ModuleType) -> list[str]:
    """The names, in lower case, that Keras resolves to a public object."""
    public = [name for name in dir(module) if name[0] != "_"]
    names = [made for n in public for made in (_SNAKE.sub("_", n).lower(), n.lower())]
    known = [
        name for name in dict.fromkeys(names) if name not in _NO_CHOICES and _finds(find, name)
    ]
    return list(dict.fromkeys([*known, *(_BY_SHAPE if what == "metric" else ())]))


def _finds(find: Callable[[str], Any], name: str) -> bool:
    try:
        return not isinstance(find(name), ModuleType)
    except (KeyError, TypeError, ValueError):  # unknown, or a class that needs arguments
        return False
