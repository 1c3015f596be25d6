"""The error that training raises for a mistake that its caller can mend."""

from __future__ import annotations


class TrainingError(ValueError):
    """A model, a layer or a training run cannot do what was asked of it.

    The message says what was expected, what was received and how to mend it.
    """
