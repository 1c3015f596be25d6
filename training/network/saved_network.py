"""A SavedModel on disk as a network."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from training.column_facts.recorded_fits import read_fits
from training.errors import TrainingError
from training.network.named_inputs import expect_single, name_inputs
from training.network.network import Columns
from training.network.servable import (
    call_on_cpu,
    expect_servable,
    is_half,
    traced,
    weight_bytes,
)
from training.signature import ModelSignature, TensorSpec
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES

SIGNATURE = "serving_default"


class SavedNetwork:
    """A SavedModel on disk, from any source.

    It is not a Keras model, but has the attributes that a proof of parity needs, by its own names:
    `inputs`, `input` and `predict_on_batch`.

    Raises:
        TrainingError: TensorFlow cannot load it, it lacks the signature `serving_default`, or that
            signature's tensors cannot be served.
    """

    in_tensorflow = True

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._loaded = tf.saved_model.load(str(path))
        except Exception as error:  # TensorFlow raises errors of any type
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise TrainingError(f"Expected a SavedModel in {path}. Received: {line}.") from error
        signatures = self._loaded.signatures
        if SIGNATURE not in signatures:
            raise TrainingError(
                f"Expected the signature {SIGNATURE!r} in {path}. "
                f"Received: {', '.join(signatures) or 'none'}. Save the model with that one."
            )
        self._own = self.function = signatures[SIGNATURE]
        expect_servable(self._own)
        self.columns: Columns = {}
        input_specs = self._own.structured_input_signature[1]
        output_specs = self._own.structured_outputs
        self.inputs = tuple(_spec("input", name, spec) for name, spec in input_specs.items())
        outputs = tuple(_spec("output", name, spec) for name, spec in output_specs.items())
        self.signature = ModelSignature(self.inputs, outputs)

    def renamed(self, columns: Mapping[str, Any]) -> SavedNetwork:
        """The same network, with its signature's inputs renamed to the workflow's columns.

        Raises:
            TrainingError: as `name_inputs`.
        """
        if not columns:
            return self
        other = copy(self)
        names = name_inputs([spec.name for spec in self.inputs], expect_single(columns))
        other.columns = names
        inputs = (replace(s, name=names.get(s.name, s.name)) for s in self.inputs)
        other.signature = replace(self.signature, inputs=tuple(inputs))
        other.function, other.signature = traced(other.call, other.signature)
        return other

    @cached_property
    def input(self) -> dict[str, TensorSpec]:
        """The input structure of `predict_on_batch`."""
        return {spec.name: spec for spec in self.inputs}

    def predict_on_batch(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for arrays (N, k), by name."""
        inputs = {
            name: tf.constant(np.asarray(tensors[name]).astype(DTYPES[spec.dtype].numpy))
            for name, spec in self.input.items()
        }
        return {name: tensor.numpy() for name, tensor in self._own(**inputs).items()}

    @cached_property
    def is_half(self) -> bool:
        """Whether it computes in 16-bit floats."""
        return is_half(self._own)

    @property
    def weight_bytes(self) -> int:
        """The bytes of its weights."""
        return weight_bytes(self._own)

    def answer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        return call_on_cpu(self.call, tensors)

    def call(self, **tensors: Any) -> dict[str, Any]:
        """The outputs, by name."""
        return dict(self._own(**{name: tensors[self._column(name)] for name in self.input}))

    def _column(self, name: str) -> str:
        return str(self.columns.get(name, name))

    def tables(self) -> tuple[()]:
        """None: a graph does not say which of its inputs are positions in a table."""
        return ()

    def fits(self) -> dict[str, str]:
        """The digests that `save_model` has written beside it."""
        return read_fits(self._path)

    def state(self) -> Any:
        """The loaded model."""
        module = tf.Module()
        module.loaded = self._loaded
        return module


def _spec(side: str, name: str, tensor: Any) -> TensorSpec:
    shape = tuple(tensor.shape) if tensor.shape.rank is not None else ()
    if len(shape) != 2 or shape[0] is not None or shape[1] is None:
        raise TrainingError(
            f"Expected the {side} {name!r} of the SavedModel of shape (None, k): any number of "
            f"rows, k columns. Received: {tensor.shape}. Save the model with such tensors."
        )
    if tensor.dtype.name not in DTYPES:
        raise TrainingError(
            f"Expected the {side} {name!r} of the SavedModel of a dtype among {', '.join(DTYPES)}. "
            f"Received: {tensor.dtype.name}. Cast it in the model."
        )
    return TensorSpec(name, tensor.dtype.name, shape)
