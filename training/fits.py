"""Ties of a model to the fits that its features come from.

A network that was trained on one fit's ids and numbers gives wrong answers for those of another one,
and nothing in its shape shows it if their vocabularies are of equal size.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras

from training.layers.records_fits import RecordsFits
from training.private import layers_of


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
