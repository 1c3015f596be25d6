"""Ties of a model to the fits that its features come from, kept in its layers.

A network that was trained on one fit's ids and numbers gives wrong answers for those of another one,
and nothing in its shape shows it if their vocabularies are of equal size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from training.private import layers_of


class RecordsFits(keras.layers.Layer):
    """Base of layers that a saved model keeps the digests of its features' fits in.

    Args:
        fits: column -> digest of the fit, as `train` records it: the property `fit_digest` of the
            loader's columns.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, *, fits: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fits = fits or {}

    @property
    def fits(self) -> dict[str, str]:
        """The recorded digests of all columns of the model."""
        return dict(self._fits)

    @fits.setter
    def fits(self, fits: Mapping[str, str]) -> None:
        # Pairs, since Keras would track a dictionary.
        self._fits = tuple(sorted(fits.items()))

    def get_config(self) -> dict[str, Any]:
        """The arguments that were given, and what was recorded."""
        return {**super().get_config(), **({"fits": self.fits} if self._fits else {})}


def fits_of_model(model: keras.Model) -> dict[str, str]:
    """Column -> digest of the fit, as recorded in the layers of a model; empty if none has a place for it.

    Example:
        >>> from training import layers
        >>> user = keras.Input((1,), name="user", dtype="int64")
        >>> table = layers.EmbeddingCollection({"user": (9, 4)}, fits={"user": "9f"})
        >>> fits_of_model(keras.Model({"user": user}, table({"user": user})))
        {'user': '9f'}
    """
    found: dict[str, str] = {}
    for layer in layers_of(model):
        if isinstance(layer, RecordsFits):
            found |= layer.fits
    return found


def record_fits(model: keras.Model, fits: Mapping[str, str]) -> None:
    """Record the digests in all layers that have a place for them."""
    for layer in layers_of(model):
        if isinstance(layer, RecordsFits):
            layer.fits = fits
