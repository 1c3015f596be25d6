"""Checks of a run's settings, before Keras reads them in a step or after an epoch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import keras

from training.errors import TrainingError, expect_tensorflow
from training.private import functions_of, origin
from training.run.label_values import function_of
from workflow.schema.names import did_you_mean, listed
from workflow.schema.python_number import python_number

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
BY_SHAPE = ("accuracy", "acc")


def compile_settings(
    optimizer: Any,
    loss: Any,
    metrics: Any = None,
    loss_weights: Any = None,
    outputs: Sequence[str] = (),
    weighted_metrics: Any = None,
) -> dict[str, Any]:
    """Check names and structure of a run's settings, and return them as `model.compile` takes them.

    Args:
        optimizer: an optimizer or its name.
        loss: a loss or its name; for each of several outputs also by name, or in order, and then also a
            list of losses for one output.
        metrics: metrics or their names, which each output has, or a list of them for each output, by name
            or in order; None for AUC, where the loss does not say that the output is no probability.
        loss_weights: the weight of each output's loss in their sum, by name or in order; for an output
            with several losses one for all of them, or a list.
        outputs: the names of the model's outputs; none if it has one, or they are unknown.
        weighted_metrics: as metrics; none for None.

    Returns:
        loss, metrics, loss_weights and weighted_metrics; of several outputs by name.

    Raises:
        TrainingError: a name that Keras does not know, with similar names; no optimizer or no loss;
            settings for an output that the model does not have, or for too few or too many; metrics
            that are not a sequence; or weights that are not numbers from 0.

    Example:
        >>> compile_settings("adam", "mse", ["mae"])
        {'loss': 'mse', 'loss_weights': None, 'metrics': ['mae'], 'weighted_metrics': None}
    """
    if optimizer is None or loss is None:
        raise TrainingError(
            f"Expected an optimizer and a loss. Received: optimizer={optimizer!r}, loss={loss!r}."
        )
    _check("optimizer", optimizer, keras.optimizers.get, keras.optimizers)
    names = outputs or [""]
    losses = _of_outputs("loss", loss, names)
    for of_output in losses.values():
        _check_losses(of_output)
    usual = {name: _usual_metrics(of_output) for name, of_output in losses.items()}
    given = {
        "metrics": _of_outputs("metrics", metrics, names) if metrics is not None else usual,
        "weighted_metrics": _of_outputs("weighted_metrics", weighted_metrics, names),
    }
    metric_ids: set[int] = set()
    counted = {
        what: {n: _checked_metrics(what, each, metric_ids) for n, each in of_outputs.items()}
        for what, of_outputs in given.items()
    }
    weights = None
    if loss_weights is not None:
        settings = _of_outputs("loss_weights", loss_weights, names)
        weights = {name: _weights(settings[name], losses[name]) for name in names}
        if not all(map(_is_weight, keras.tree.flatten(weights))):
            raise TrainingError(
                "Expected loss_weights as numbers from 0, one for each output or for each of its losses. "
                f"Received: {loss_weights!r}."
            )
    # Keras expects a step to compute an empty list of metrics, too.
    settings = {what: each if any(each.values()) else None for what, each in counted.items()}
    if len(names) > 1:
        return {"loss": losses, "loss_weights": weights, **settings}
    (name,) = names
    return {
        "loss": losses[name],
        "loss_weights": weights and [*weights.values()],
        **{what: each and each[name] for what, each in settings.items()},
    }


def _check_losses(loss: Any) -> None:
    """Raise TrainingError unless it is a loss, a list of them, or None for an output that has none."""
    losses = loss if isinstance(loss, (list, tuple)) else [loss]
    if not losses or (
        losses is loss and not all(isinstance(entry, str) or callable(entry) for entry in losses)
    ):
        raise TrainingError(f"Expected losses in the list of an output. Received: {loss!r}.")
    for entry in losses:
        _check("loss", entry, keras.losses.get, keras.losses)


def _weights(weight: Any, loss: Any) -> Any:
    """The weight of an output's loss; of several losses a list; None where the numbers differ."""
    if isinstance(loss, (list, tuple)):
        weights = weight if isinstance(weight, (list, tuple)) else [weight] * len(loss)
        return [_weights(part, None) for part in weights] if len(weights) == len(loss) else None
    if isinstance(weight, (list, tuple)):
        return None
    return 1.0 if weight is None else python_number(weight)


def _is_weight(weight: Any) -> bool:
    return isinstance(weight, (int, float)) and not isinstance(weight, bool) and weight >= 0


def _of_outputs(what: str, setting: Any, names: Sequence[str]) -> dict[str, Any]:
    """The part of a setting that each output has; None for one without."""
    if isinstance(setting, Mapping):
        keys = [name for name in names if name]
        if unknown := [name for name in setting if name not in keys]:
            has = f"by the names of the outputs, {listed(keys)}" if keys else "for the one output"
            raise TrainingError(
                f"Expected {what} {has}. Received: {listed(unknown)}.{did_you_mean(unknown, keys)}"
            )
        return {name: setting.get(name) for name in names}
    # A list of metrics is for each output, unless it holds lists.
    if isinstance(setting, (list, tuple)) and (
        not what.endswith("metrics")
        or (len(names) > 1 and any(isinstance(m, (list, tuple)) for m in setting))
    ):
        if len(setting) != len(names):
            raise TrainingError(
                f"Expected {what} for each of the model's {len(names)} outputs. Received: {setting!r}."
            )
        return dict(zip(names, setting, strict=True))
    return dict.fromkeys(names, setting)


def _usual_metrics(loss: Any) -> list[Any]:
    """AUC, unless a loss of Keras says that the output is no probability, or there is no loss."""
    losses = [one for one in keras.tree.flatten(loss) if one is not None]
    functions = [function_of(one) for one in losses]
    of_keras = [one.__name__ for one in functions if origin(one) == "keras"]
    no_chance = of_keras and not any(name.startswith("binary") for name in of_keras)
    if no_chance or not functions:
        return []
    from_logits = any(getattr(one, "from_logits", False) for one in losses)
    return [keras.metrics.AUC(name="auc", from_logits=from_logits)]


def _checked_metrics(what: str, metrics: Any, metric_ids: set[int]) -> list[Any]:
    """The metrics of an output, each of which has been checked and is its own; none for None."""
    if metrics is not None and not isinstance(metrics, (list, tuple)):
        raise TrainingError(f'Expected {what} as a list, such as ["auc"]. Received: {metrics!r}.')
    for metric in metrics or ():
        if metric is None or type(metric) in (keras.metrics.Mean, keras.metrics.Sum):
            raise TrainingError(
                f"Expected {what} that compare labels with predictions. Received: {metric!r}. "
                'For example "auc" or "mean_squared_error".'
            )
        if getattr(metric, "name", None) == "loss":
            raise TrainingError(
                f"Expected {what} of other names than that of the loss, which they would replace in the report. "
                f'Received: {metric!r}. Give it another: name="...".'
            )
        if metric not in BY_SHAPE:
            _check("metric", metric, keras.metrics.get, keras.metrics)
    return [_own(metric, metric_ids) for metric in metrics or ()]


def _own(metric: Any, metric_ids: set[int]) -> Any:
    """The metric, or a new one of the same kind, since one object cannot count twice."""
    if not isinstance(metric, keras.metrics.Metric) or id(metric) not in metric_ids:
        metric_ids.add(id(metric))
        return metric
    copy = type(metric).from_config(metric.get_config())
    if functions_of(copy) != functions_of(metric):
        raise TrainingError(
            "Expected metrics that can be recreated from their get_config, one for each output. "
            f"Received: {metric!r}, with a function of your own. Make one for each: "
            "metrics={output: [metric]}."
        )
    return copy


def check_objects(model: Any, callbacks: Any) -> None:
    """Raise TrainingError unless they are a Keras model of TensorFlow, and a list of Keras callbacks."""
    expect_tensorflow(keras.backend.backend())
    if not isinstance(model, keras.Model):
        raise TrainingError(f"Expected a keras.Model to train. Received: {model!r}.")
    is_list = isinstance(callbacks, (list, tuple))
    if not is_list or not all(isinstance(one, keras.callbacks.Callback) for one in callbacks):
        raise TrainingError(
            "Expected callbacks as a list of objects of keras.callbacks.Callback. "
            f"Received: {callbacks!r}."
        )


def _check(what: str, choice: Any, find: Callable[[str], Any], module: ModuleType) -> None:
    if not isinstance(choice, str) or _finds(find, choice):
        return
    alike = difflib.get_close_matches(choice.lower(), _names(what, find, module), n=3)
    names = " or ".join(map(repr, alike or _USUAL[what]))
    hint = f"Did you mean {names}?" if alike else f"Usual are {names}."
    raise TrainingError(
        f"Expected the {what} as an object of Keras, or the name of one that needs no arguments. "
        f"Received: {choice!r}. {hint}"
    )


def _names(what: str, find: Callable[[str], Any], module: ModuleType) -> list[str]:
    """The names, in lower case, that Keras resolves to a public object."""
    public = [name for name in dir(module) if name[0] != "_"]
    names = [spelling for n in public for spelling in (_SNAKE.sub("_", n).lower(), n.lower())]
    choices = [name for name in dict.fromkeys(names) if _finds(find, name)]
    return list(dict.fromkeys([*choices, *(BY_SHAPE if what == "metric" else ())]))


def _finds(find: Callable[[str], Any], name: str) -> bool:
    if name.lower() in _NO_CHOICES:
        return False
    try:
        return not isinstance(find(name), ModuleType)
    except (KeyError, TypeError, ValueError):  # unknown, or a class that needs arguments
        return False
