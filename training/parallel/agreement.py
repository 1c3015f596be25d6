"""Settings that all workers must have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from loader.frameworks.run_settings import different, setting
from training.errors import TrainingError
from training.parallel.failures import together
from training.parallel.workers import Workers
from training.private import compiled_with, layers_of

# Arguments of `compile` beside the optimizer.
_COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics")


def agree(
    workers: Workers, settings: Mapping[str, Any], fault: str = "", own_data: str = ""
) -> None:
    """Compare settings with those of the other workers, which call this function too.

    Args:
        workers: all workers.
        settings: values that JSON can hold, by the names that an error shows.
        fault: an error that this worker has found, "" for none.
        own_data: the digest of data that this worker does not share, "" for none.

    Raises:
        TrainingError: another worker has others, or the same data, or one has found an error, which is
            raised on all workers; or one is lost.
    """
    if workers.collectives is None:
        return
    # By their types: a text of another object may hold its address.
    text = json.dumps([settings, fault, own_data], default=lambda value: type(value).__name__)
    with together(workers):
        texts = workers.collectives.texts(text)
    (first, *other_settings), faults, digests = zip(*map(json.loads, texts), strict=True)
    for rank, other in enumerate(other_settings, start=1):
        for name in [*first, *other]:
            if first.get(name) != other.get(name):
                here, there = different(first.get(name), other.get(name))
                raise TrainingError(
                    f"Expected all workers to have the same {name}. Received: {here} on "
                    f"{workers.name(0)}, {there} on {workers.name(rank)}. Start all workers with the "
                    "same program, arguments and data."
                )
    if first_fault := next(filter(None, faults), ""):
        raise TrainingError(first_fault)
    for rank, digest in enumerate(digests):
        if digest and digest in digests[:rank]:
            raise TrainingError(
                "Expected rows of its own for each worker, so that every row is trained on once. Received: "
                f"all of the same data ({digest}) on {workers.name(digests.index(digest))} and "
                f"{workers.name(rank)}. Pass the loader global_size=workers.size and "
                "global_rank=workers.rank."
            )


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
        "frozen weights": [n for n, v in enumerate(model.variables) if not v.trainable],
        "state of metrics": [[list(v.shape), v.dtype] for v in model.metrics_variables],
        "optimizer": setting(model.optimizer),
        **{name: setting(compiled_with(model)[name]) for name in _COMPILED},
    }
