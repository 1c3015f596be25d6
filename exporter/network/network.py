"""The network that is exported: a Keras model, or a model on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from exporter.errors import ExportError
from exporter.network.named_inputs import name_inputs
from exporter.network.servable import expect_servable, traced
from training.errors import TrainingError
from training.saved_model import network_function, network_state
from training.signature import ModelSignature, TensorSpec, model_signature
from workflow.schema.dtypes import DTYPES

SIGNATURE = "serving_default"
# In a SavedModel whose inputs in the ensemble differ from the network's own.
ENSEMBLE_SIGNATURE = "ensemble"


class Network(Protocol):
    """A network, as required by an export.

    Attributes:
        signature: its named inputs and outputs; inputs have the names of the columns.
        function: a concrete function with that signature.
        columns: its own name for each renamed input, and the new name.
    """

    signature: ModelSignature
    function: Any
    columns: Mapping[str, str]

    def call(self, **tensors: Any) -> dict[str, Any]:
        """The outputs, by name, in inference mode. Can be traced."""

    def state(self) -> Any:
        """Objects that a SavedModel which calls the network must contain."""


class KerasNetwork:
    """A Keras model in memory.

    Args:
        model: the model.
        columns: as in `name_inputs`.

    Raises:
        TrainingError: its inputs or outputs cannot be served under names.
        ExportError: its outputs differ from its declaration, or it needs this process's Python
            code.
    """

    def __init__(self, model: keras.Model, columns: Mapping[str, str]) -> None:
        self.model = model
        inputs = getattr(model, "inputs", None) or ()
        self.columns: Mapping[str, str] = name_inputs([t.name for t in inputs], columns)
        self.signature = model_signature(model, self.columns)
        self._function = network_function(model, self.signature)
        self.function = traced(self._function, self.signature)

    def call(self, **tensors: Any) -> dict[str, Any]:
        """The outputs, by name, in inference mode."""
        return self._function(**tensors)

    def state(self) -> Any:
        """Each variable in use once, and its lookup tables."""
        return network_state(self.model, self.function)


class SavedNetwork:
    """A SavedModel on disk, from any source.

    It is not a Keras model, but has the attributes that a proof of parity needs, by its own names:
    `inputs`, `input` and `predict_on_batch`.

    Args:
        path: its folder.

    Raises:
        ExportError: TensorFlow cannot load it, it lacks the signature `serving_default`, or that
            signature's tensors cannot be served.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._loaded = tf.saved_model.load(str(path))
        except Exception as error:  # TensorFlow raises errors of any type
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ExportError(f"Expected a SavedModel in {path}. Received: {line}.") from error
        signatures = self._loaded.signatures
        if SIGNATURE not in signatures:
            raise ExportError(
                f"Expected the signature {SIGNATURE!r} in {path}. "
                f"Received: {', '.join(signatures) or 'none'}. Save the model with that one."
            )
        self._own = self.function = signatures[SIGNATURE]
        expect_servable(self._own)
        self.columns: Mapping[str, str] = {}
        given = self._own.structured_input_signature[1]
        made = self._own.structured_outputs
        self.inputs = tuple(_spec("input", name, spec) for name, spec in given.items())
        outputs = tuple(_spec("output", name, spec) for name, spec in made.items())
        self.signature = ModelSignature(self.inputs, outputs)

    def renamed(self, columns: Mapping[str, str]) -> SavedNetwork:
        """The same network, with its signature's inputs renamed to the workflow's columns.

        Raises:
            ExportError: as `name_inputs`.
        """
        other = copy(self)
        other.columns = name_inputs([spec.name for spec in self.inputs], columns)
        inputs = (replace(s, name=other.columns.get(s.name, s.name)) for s in self.inputs)
        other.signature = replace(self.signature, inputs=tuple(inputs))
        other.function = traced(other.call, other.signature)
        return other

    @cached_property
    def input(self) -> dict[str, TensorSpec]:
        """The input structure of `predict_on_batch`."""
        return {spec.name: spec for spec in self.inputs}

    def predict_on_batch(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for arrays (N, k), by name."""
        given = {
            name: tf.constant(np.asarray(tensors[name]).astype(DTYPES[spec.dtype].numpy))
            for name, spec in self.input.items()
        }
        return {name: tensor.numpy() for name, tensor in self._own(**given).items()}

    def call(self, **tensors: Any) -> dict[str, Any]:
        """The outputs, by name."""
        names = {name: self.columns.get(name, name) for name in self.input}
        return dict(self._own(**{name: tensors[column] for name, column in names.items()}))

    def state(self) -> Any:
        """The loaded model."""
        module = tf.Module()
        module.loaded = self._loaded
        return module


def _spec(side: str, name: str, tensor: Any) -> TensorSpec:
    shape = tuple(tensor.shape) if tensor.shape.rank is not None else ()
    if len(shape) != 2 or shape[0] is not None or shape[1] is None:
        raise ExportError(
            f"Expected the {side} {name!r} of the SavedModel of shape (None, k): any number of "
            f"rows, k columns. Received: {tensor.shape}. Save the model with such tensors."
        )
    if tensor.dtype.name not in DTYPES:
        raise ExportError(
            f"Expected the {side} {name!r} of the SavedModel of a dtype among {', '.join(DTYPES)}. "
            f"Received: {tensor.dtype.name}. Cast it in the model."
        )
    return TensorSpec(name, tensor.dtype.name, shape)


def as_network(model: Any, columns: Mapping[str, str] | None = None) -> Network:
    """Make a network of a Keras model, or of the path of a model.

    Args:
        model: either of these.
        columns: as in `name_inputs`.

    Raises:
        ExportError: there is no model at the path, a SavedModel that cannot be served, or columns
            for inputs that it lacks.
        TrainingError: a Keras model that cannot be served.
    """
    if isinstance(model, str | os.PathLike):
        model = load_network(Path(model))
    if isinstance(model, SavedNetwork):
        return model.renamed(columns) if columns else model
    return KerasNetwork(model, columns or {})


def load_network(path: Path) -> Any:
    """The Keras model of a `.keras` file, or the SavedModel of a folder.

    Raises:
        ExportError: there is neither, or it cannot be read.
    """
    if (path / "saved_model.pb").is_file():
        return SavedNetwork(path)
    if path.suffix != ".keras" or not path.is_file():
        received = (
            "no such file" if not path.exists() else "a folder" if path.is_dir() else "a file"
        )
        raise ExportError(
            f"Expected a Keras model in {path}, written by model.save('model.keras'), or the folder "
            f"of a SavedModel. Received: {received}."
        )
    try:
        return keras.saving.load_model(path)
    except (ValueError, TypeError, OSError, TrainingError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError(f"Expected a Keras model in {path}. Received: {line}") from error
