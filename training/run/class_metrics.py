"""Check that metrics which compare the numbers of classes have several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from training.errors import TrainingError
from training.run.names import BY_SHAPE

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


def check_class_metrics(settings: Mapping[str, Any], widths: Mapping[str, int | None]) -> None:
    """Raise TrainingError for a metric of the class with the largest number, of an output with one number.

    Of one number that is always the first class: F1 is that of a model which predicts 1 for each row.

    Args:
        settings: metrics and weighted_metrics, as `compile_settings` returns them.
        widths: the width of each output by its name.

    Example:
        >>> metrics = ["auc", keras.metrics.F1Score(threshold=0.5)]
        >>> check_class_metrics({"metrics": metrics, "weighted_metrics": None}, {"": 1})
    """
    for metrics in (settings["metrics"], settings["weighted_metrics"]):
        for name, width in widths.items():
            of_output = metrics[name] if isinstance(metrics, Mapping) else metrics
            for metric in keras.tree.flatten(of_output or []) if width == 1 else ():
                if _compares_classes(metric):
                    raise _of_one_number(metric)


def _of_one_number(metric: Any) -> TrainingError:
    return TrainingError(
        "Expected metrics of a single number for each row, as the output has one: of one number the first "
        f"class is always the largest. Received: {metric!r}. Take keras.metrics.F1Score(threshold=0.5), "
        '"binary_accuracy", "precision" or "recall".'
    )


def _compares_classes(metric: Any) -> bool:
    """Whether it is one of Keras' metrics of the class with the largest number."""
    if isinstance(metric, str) and metric not in BY_SHAPE:
        metric = keras.metrics.get(metric)
    kind = metric if isinstance(metric, type) else type(metric)
    if kind in (keras.metrics.F1Score, keras.metrics.FBetaScore):
        return getattr(metric, "threshold", None) is None
    return kind in _OF_CLASSES or metric in _FUNCTIONS
