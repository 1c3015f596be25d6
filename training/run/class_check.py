"""Check that losses and metrics which compare the numbers of classes have several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.run.label_values import function_of
from training.run.names import BY_SHAPE

_LOSSES = (keras.losses.categorical_crossentropy, keras.losses.categorical_focal_crossentropy)
_OF_CLASSES = (
    keras.metrics.CategoricalAccuracy,
    keras.metrics.TopKCategoricalAccuracy,
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseTopKCategoricalAccuracy,
)
_FUNCTIONS = (
    keras.metrics.categorical_accuracy,
    keras.metrics.top_k_categorical_accuracy,
    keras.metrics.sparse_categorical_accuracy,
    keras.metrics.sparse_top_k_categorical_accuracy,
)


def check_classes(settings: Mapping[str, Any], widths: Mapping[str, int | None]) -> None:
    """Raise TrainingError for a loss or metric that compares classes, of an output with one number.

    Of one number the first class is always the largest: F1 is that of a model which predicts 1 for each row,
    and the cross-entropy is 0.

    Args:
        settings: loss, metrics and weighted_metrics, as `compile_settings` returns them.
        widths: the width of each output by its name.

    Example:
        >>> metrics = ["auc", keras.metrics.F1Score(threshold=0.5)]
        >>> settings = {"loss": "mse", "metrics": metrics, "weighted_metrics": None}
        >>> check_classes(settings, {"": 1})
    """
    outputs = [name for name, width in widths.items() if width == 1]
    for loss in _of_outputs(settings["loss"], outputs):
        if function_of(loss) in _LOSSES:
            instead = '"binary_crossentropy", or an output with a number for each class'
            raise _of_one_number("loss", loss, instead)
    for what in ("metrics", "weighted_metrics"):
        for metric in _of_outputs(settings[what], outputs):
            if _compares_classes(metric):
                instead = 'keras.metrics.F1Score(threshold=0.5), "binary_accuracy", "precision" or "recall"'
                raise _of_one_number(what, metric, instead)


def _of_outputs(setting: Any, outputs: Sequence[str]) -> list[Any]:
    """The losses or metrics of some outputs; a setting that is not a mapping belongs to the only output."""
    parts = (
        [setting[n] for n in outputs] if isinstance(setting, Mapping) else [setting] * len(outputs)
    )
    return [part for part in keras.tree.flatten(parts) if part is not None]


def _of_one_number(what: str, received: Any, instead: str) -> TrainingError:
    return TrainingError(
        f"Expected {what} of a single number for each row, as the output has one: of one number the first "
        f"class is always the largest. Received: {received!r}. Take {instead}."
    )


def _compares_classes(metric: Any) -> bool:
    """Whether it is one of Keras' metrics of the class with the largest number."""
    if isinstance(metric, str) and metric not in BY_SHAPE:
        metric = keras.metrics.get(metric)
    kind = metric if isinstance(metric, type) else type(metric)
    if kind in (keras.metrics.F1Score, keras.metrics.FBetaScore):
        return getattr(metric, "threshold", None) is None
    return kind in _OF_CLASSES or metric in _FUNCTIONS
