"""Settings that all workers must have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.parallel.failures import together
from training.parallel.workers import Workers
from training.private import layers_of


def agree(workers: Workers, settings: Mapping[str, Any], fault: str = "") -> None:
    """Compare settings with those of the other workers, which call this function too.

    Args:
        workers: all workers.
        settings: values that JSON can hold, by the names that an error shows.
        fault: an error that this worker has found, "" for none.

    Raises:
        TrainingError: another worker has others, or one has found an error, which is raised on all
            workers; or one is lost.
    """
    if workers.collectives is None:
        return
    # By their types: a text of another object may hold its address.
    own = json.dumps([settings, fault], default=lambda value: type(value).__name__)
    with together(workers):
        texts = workers.collectives.texts(own)
    (first, *others), faults = zip(*map(json.loads, texts), strict=True)
    for rank, other in enumerate(others, start=1):
        for name in [*first, *other]:
            if first.get(name) != other.get(name):
                one, two = _different(first.get(name), other.get(name))
                raise TrainingError(
                    f"Expected all workers to have the same {name}. Received: {one} on "
                    f"{workers.name(0)}, {two} on {workers.name(rank)}. Start all workers with the "
                    "same program, arguments and data."
                )
    if found := next(filter(None, faults), ""):
        raise TrainingError(found)


def fingerprint(
    model: keras.Model, shape_of: Callable[[keras.Variable], Sequence[int]] = lambda v: v.shape
) -> dict[str, Any]:
    """Settings of a compiled model for `agree`.

    Args:
        model: the model.
        shape_of: the shape of a variable, which for a divided table is that of the whole.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd")
        >>> fingerprint(model)["weights"]
        [[[2, 1], 'float32'], [[1], 'float32']]
    """
    return {
        "layers": [type(layer).__name__ for layer in layers_of(model)],
        "weights": [[list(shape_of(v)), v.dtype] for v in model.variables],
        "metrics": [[list(v.shape), v.dtype] for v in model.metrics_variables],
        "optimizer": _optimizer(model.optimizer),
    }


def _optimizer(optimizer: keras.Optimizer) -> Any:
    """Settings without names, in which Keras counts the optimizers of a process."""
    try:
        config = keras.saving.serialize_keras_object(optimizer)
    except NotImplementedError:  # by a user's class, such as one of the learning rate
        return type(optimizer).__name__
    return _unnamed(config)


def _unnamed(config: Any) -> Any:
    if not isinstance(config, Mapping):
        return config
    return {key: _unnamed(value) for key, value in config.items() if key != "name"}


def _different(one: Any, two: Any) -> tuple[Any, Any]:
    """The first parts of two values that differ."""
    if isinstance(one, Sequence) and isinstance(two, Sequence) and not isinstance(one, str):
        for a, b in zip(one, two, strict=False):
            if a != b:
                return a, b
        return f"{len(one):,} of them", f"{len(two):,}"
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        for name in [*one, *two]:
            if one.get(name) != two.get(name):
                a, b = _different(one.get(name), two.get(name))
                return f"{name}={a}", f"{name}={b}"
    return one, two
