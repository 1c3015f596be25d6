"""The error that training raises for a mistake of its caller."""

from __future__ import annotations


class TrainingError(ValueError):
    """A model, a layer or a training run cannot work as requested.

    The message says what was expected, what was received and how to fix it.
    """
