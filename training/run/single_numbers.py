"""Metrics as single numbers, though some have one for each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def single_numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """The values of metrics, each under a name of its own.

    Args:
        logs: values by the metric's name: numbers, or arrays such as those of
            `keras.metrics.F1Score`, whose numbers are named by their places.

    Example:
        >>> single_numbers({"loss": 0.25, "f1_score": np.array([0.5, 1.0])})
        {'loss': 0.25, 'f1_score[0]': 0.5, 'f1_score[1]': 1.0}
    """
    numbers: dict[str, float] = {}
    for name, value in logs.items():
        array = np.asarray(value)
        if array.size == 1:
            numbers[name] = array.item()
            continue
        for place in np.ndindex(array.shape):
            numbers[f"{name}[{', '.join(map(str, place))}]"] = array[place].item()
    return numbers
