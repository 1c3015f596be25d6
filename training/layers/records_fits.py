"""Layers that record which fit the features come from on which their model was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from training.errors import TrainingError


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
