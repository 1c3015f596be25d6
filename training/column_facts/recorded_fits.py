"""Digests of the fits that a network's features come from, and of its weights; without Keras, for any network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.errors import TrainingError

# The key of an ONNX model's metadata, and the file's name in a SavedModel.
KEY = "fit_digests"
_FILE = Path("assets.extra") / f"{KEY}.json"


def write_fits(folder: Path, fits: Mapping[str, str]) -> None:
    """Write digests into the folder of a SavedModel, where TensorFlow ignores them."""
    if fits:
        (folder / _FILE).parent.mkdir()
        (folder / _FILE).write_text(json.dumps(dict(fits), sort_keys=True), encoding="utf-8")


def read_fits(folder: Path) -> dict[str, str]:
    """The digests in the folder of a SavedModel; none if it has none.

    Raises:
        TrainingError: the file is damaged.
    """
    file = folder / _FILE
    return read_text(file.read_text(encoding="utf-8"), str(file)) if file.is_file() else {}


def fits_in(metadata: Any) -> dict[str, str]:
    """The digests in the metadata `fit_digests` of an ONNX model.

    Args:
        metadata: its `metadata_props`.

    Raises:
        TrainingError: the metadata is no JSON object of texts by input.
    """
    text = next((entry.value for entry in metadata if entry.key == KEY), None)
    return {} if text is None else read_text(text, f"the metadata {KEY!r} of the ONNX network")


def read_text(text: str, place: str) -> dict[str, str]:
    """The digests of a JSON object.

    Args:
        text: the JSON.
        place: where it was, for an error.

    Raises:
        TrainingError: it is something else.
    """
    try:
        fits = json.loads(text)
    except ValueError:
        fits = None
    if not isinstance(fits, dict) or not all(isinstance(fit, str) for fit in fits.values()):
        raise TrainingError(
            f"Expected a JSON object of the fit's digest by column in {place}. Received: {text:.100}."
        )
    return fits


def digests_of_weights(variables: Iterable[Any]) -> frozenset[str]:
    """The digest of each variable's dtype, shape and values, by which two trainings are told apart.

    Args:
        variables: arrays, or variables of Keras or TensorFlow; none that is divided among workers.

    Example:
        >>> len(digests_of_weights([np.zeros(2), np.zeros(2, "float32")]))
        2
    """
    return frozenset(_digest(np.asarray(variable)) for variable in variables)


def _digest(values: Any) -> str:
    head = f"{values.dtype} {values.shape}".encode()
    digest = hashlib.blake2b(head, digest_size=16)
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
