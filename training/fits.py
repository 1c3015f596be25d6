"""Ties of a model to the fits that its features come from.

A network that was trained on one fit's ids and numbers gives wrong answers for those of another one,
and nothing in its shape shows it if their vocabularies are of equal size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

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


def digests_of_weights(variables: Iterable[Any]) -> frozenset[str]:
    """The digest of each variable's dtype, shape and values, by which two trainings are told apart.

    Args:
        variables: of Keras or TensorFlow; none that is divided among workers.

    Example:
        >>> len(digests_of_weights([keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.5])]))
        2
    """
    return frozenset(_digest(keras.ops.convert_to_numpy(variable)) for variable in variables)


def _digest(values: Any) -> str:
    head = f"{values.dtype} {values.shape}".encode()
    made = hashlib.blake2b(head, digest_size=16)
    made.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return made.hexdigest()


def _places(model: keras.Model) -> list[RecordsFits]:
    return [layer for layer in layers_of(model) if isinstance(layer, RecordsFits)]
