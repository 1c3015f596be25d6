"""Ties of a model to the fits that its features come from, kept in its layers.

A network that was trained on one fit's ids and numbers gives wrong answers for those of another one,
and nothing in its shape shows it if their vocabularies are of equal size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from training.column_facts.recorded_fits import KEY
from training.errors import TrainingError
from training.private import layers_of


class RecordsFits(keras.layers.Layer):
    """Base of layers that a saved model keeps the digests of its features' fits in.

    Args:
        fits: column -> digest of the fit, as `train` records it: the property `fit_digest` of the
            loader's columns.
        **kwargs: arguments of `keras.layers.Layer`.

    Raises:
        TrainingError: `fits` is no dictionary of texts.
    """

    def __init__(self, *, fits: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fits = {} if fits is None else fits

    @property
    def fits(self) -> dict[str, str]:
        """The recorded digests of all columns of the model."""
        return dict(self._fits)

    @fits.setter
    def fits(self, fits: Mapping[str, str]) -> None:
        if not isinstance(fits, Mapping) or not all(
            isinstance(t, str) for t in [*fits, *fits.values()]
        ):
            raise TrainingError(
                "Expected fits as a dictionary of column -> the property fit_digest of its schema, such "
                f"as training.train records it. Received: {fits!r:.200}."
            )
        # Pairs, since Keras would track a dictionary.
        self._fits = tuple(sorted(fits.items()))

    def get_config(self) -> dict[str, Any]:
        """The arguments that were given, and what was recorded."""
        return {**super().get_config(), **({"fits": self.fits} if self._fits else {})}


def fits_of_model(model: keras.Model) -> dict[str, str]:
    """Column -> digest of the fit, as `record_fits` has recorded it; empty if nothing is recorded.

    Where parts of the model were trained on different fits of a column, the text differs from every digest.

    Example:
        >>> from training import layers
        >>> user = keras.Input((1,), name="user", dtype="int64")
        >>> table = layers.EmbeddingCollection({"user": (9, 4)}, fits={"user": "9f"})
        >>> fits_of_model(keras.Model({"user": user}, table({"user": user})))
        {'user': '9f'}
    """
    records = [dict(getattr(part, KEY, ())) for part in layers_of(model)]
    found: dict[str, dict[str, None]] = {}
    for fits in [*records, *(layer.fits for layer in _places(model))]:
        for column, fit in fits.items():
            found.setdefault(column, {})[fit] = None
    return {column: " and ".join(fits) for column, fits in found.items()}


def record_fits(model: keras.Model, fits: Mapping[str, str]) -> None:
    """Record the digests in all layers that have a place for them.

    Without such a layer they are in the model object and in Keras' own tables, from where a model of the same
    layers has them too, and not in a `.keras` file.
    """
    places = _places(model)
    for layer in places:
        layer.fits = fits
    if fits and not places:
        tables = (part for part in layers_of(model) if isinstance(part, keras.layers.Embedding))
        for part in (model, *tables):
            setattr(part, KEY, tuple(fits.items()))  # pairs, since Keras would track a dictionary


def _places(model: keras.Model) -> list[RecordsFits]:
    """The layers that record, without those inside of another one."""
    layers = [layer for layer in layers_of(model) if isinstance(layer, RecordsFits)]
    inner = {id(part) for layer in layers for part in layers_of(layer) if part is not layer}
    return [layer for layer in layers if id(layer) not in inner]
