"""Ties of a model to the fits that its features come from.

A network that was trained on one fit's ids and numbers gives wrong answers for those of another one,
and nothing in its shape shows it if their vocabularies are of equal size.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras

from training.layers.records_fits import RecordsFits
from training.private import layers_of
from training.recorded_fits import KEY


def fits_of_model(model: keras.Model) -> dict[str, str]:
    """Column -> digest of the fit, as `record_fits` has recorded it; empty if nothing is recorded.

    Example:
        >>> from training import layers
        >>> user = keras.Input((1,), name="user", dtype="int64")
        >>> table = layers.EmbeddingCollection({"user": (9, 4)}, fits={"user": "9f"})
        >>> fits_of_model(keras.Model({"user": user}, table({"user": user})))
        {'user': '9f'}
    """
    places = _places(model)
    if not places:
        return dict(getattr(model, KEY, ()))
    return {column: fit for layer in places for column, fit in layer.fits.items()}


def record_fits(model: keras.Model, fits: Mapping[str, str]) -> None:
    """Record the digests in all layers that have a place for them.

    Without such a layer they are in the model object alone, and not in its `.keras` file.
    """
    places = _places(model)
    for layer in places:
        layer.fits = fits
    if fits and not places:
        setattr(model, KEY, tuple(fits.items()))  # pairs, since Keras would track a dictionary


def _places(model: keras.Model) -> list[RecordsFits]:
    """The layers that record, without those inside of another one."""
    found = [layer for layer in layers_of(model) if isinstance(layer, RecordsFits)]
    inner = {id(part) for layer in found for part in layers_of(layer) if part is not layer}
    return [layer for layer in found if id(layer) not in inner]
