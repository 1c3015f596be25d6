"""The loss and the metrics of a model that answers with log probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.retrieval.loss import SoftmaxLoss
from training.retrieval.softmax import LogProbability


def check_softmax(
    model: keras.Model, loss: Any, metrics: Sequence[Any] | Mapping[str, Sequence[Any]] | None
) -> Sequence[Any] | Mapping[str, Sequence[Any]] | None:
    """Check that a model of `models.two_tower(softmax=...)` is trained with `SoftmaxLoss`.

    Returns:
        The metrics; none instead of `train`'s usual ones, which are of probabilities.

    Raises:
        TrainingError: another loss.

    Example:
        >>> check_softmax(models.mlp({"userId": (50, 8)}), "mse", ["auc"])
        ['auc']
    """
    if not any(isinstance(layer, LogProbability) for layer in getattr(model, "layers", ())):
        return metrics
    if not isinstance(loss, SoftmaxLoss):
        raise TrainingError(
            "Expected loss=retrieval.SoftmaxLoss(), since the model answers with log probabilities. "
            f"Received: loss={loss!r}."
        )
    return [] if metrics is None else metrics
