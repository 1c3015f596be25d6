"""A Keras model as a network."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import keras

from training.errors import TrainingError
from training.keras_signature import model_signature
from training.layers.records_fits import fits_of_model
from training.network.named_inputs import base_of, expect_single, name_inputs
from training.network.network import Columns
from training.network.servable import call_on_cpu, is_half, traced, weight_bytes
from training.retrieval.softmax import LogProbability
from training.saved_model import network_function, network_state
from training.table_sizes import columns_of_inputs, tables_of
from workflow.errors import in_a_line
from workflow.schema.column import Array

_UNKNOWN = re.compile(r"Could not locate (?:class|function) '([^']+)'")


class KerasNetwork:
    """A Keras model in memory.

    Attributes:
        keys: input -> its key in the model's dictionary of inputs, by which training gives it a column,
            where that is another name and `columns` does not say which column feeds it.

    Raises:
        TrainingError: its inputs or outputs cannot be served under names, its outputs differ from
            its declaration, it needs this process's Python code, or its output is of use in
            training alone.
    """

    in_tensorflow = True

    def __init__(self, model: keras.Model, columns: Mapping[str, Any]) -> None:
        if any(isinstance(layer, LogProbability) for layer in getattr(model, "layers", ())):
            raise TrainingError(
                "Expected a model whose output is of use to clients. Received: two towers with a softmax, "
                "whose output compares the items of a batch in training. Export the query's tower, "
                'training.retrieval.tower(model, "query"), alone or in exporter.NearestItems.'
            )
        self.model = model
        inputs = getattr(model, "inputs", None) or ()
        names = name_inputs([t.name for t in inputs], expect_single(columns))
        self.columns: Columns = names
        self.keys = {
            name: key
            for name, key in columns_of_inputs(model).items()
            if key not in (name, base_of(name)) and columns.keys().isdisjoint((name, base_of(name)))
        }
        declared = model_signature(model, names)
        self._function = network_function(model, declared)
        self.function, self.signature = traced(self._function, declared)

    @cached_property
    def is_half(self) -> bool:
        """Whether it computes in 16-bit floats."""
        return is_half(self.function)

    @property
    def weight_bytes(self) -> int:
        """The bytes of its weights."""
        return weight_bytes(self.function)

    def answer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        return call_on_cpu(self._function, tensors)

    def call(self, **tensors: Any) -> dict[str, Any]:
        """The outputs, by name, in inference mode."""
        return self._function(**tensors)

    def state(self) -> Any:
        """Each variable in use once, and its lookup tables."""
        return network_state(self.model, self.function)

    def tables(self) -> Iterator[tuple[str, str, int]]:
        """The layer, the input and the rows of each table whose input can be determined."""
        return tables_of(self.model)

    def fits(self) -> dict[str, str]:
        """The digests that `train` has recorded in the layers."""
        return fits_of_model(self.model)


def load_keras(path: Path) -> keras.Model:
    """The Keras model of a `.keras` file.

    Raises:
        TrainingError: it is damaged, or cannot be read.
    """
    _expect_intact(path)
    try:
        return keras.saving.load_model(path)
    except (ValueError, TypeError, OSError, TrainingError) as error:
        raise _unreadable(path, error) from error


def _expect_intact(path: Path) -> None:
    # Keras says of a file that was cut off that there is none: its directory is at the end.
    if not zipfile.is_zipfile(path):
        raise _damaged(path, "cut off, or not written by model.save")
    # Keras reads weights out of order, where no checksum is compared, and leaves out what it does not find.
    try:
        with zipfile.ZipFile(path) as file:
            part = file.testzip()
    except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    if part is not None:
        raise _damaged(path, f"{part} has another checksum")


def _unreadable(path: Path, error: Exception) -> TrainingError:
    # Keras shows the config of the whole model first, and the reason last.
    reason = str(error).rpartition("Exception encountered: ")[2]
    if unknown := _UNKNOWN.search(reason):
        return TrainingError(
            f"Expected a Keras model of known classes in {path}. Received: one with {unknown[1]!r}. Import the "
            "module that registers it first, such as keras_rs. In a shell give the folder of a SavedModel, of "
            "`ensemble train --output FOLDER` or training.save_model(model, folder), which needs no class."
        )
    text = in_a_line(ValueError(reason)) or type(error).__name__
    return TrainingError(f"Expected a Keras model in {path}. Received: {text}")


def _damaged(path: Path, reason: object) -> TrainingError:
    return TrainingError(
        f"Expected a Keras model in {path}. Received: a damaged file: {reason}. "
        "Save it again with model.save('model.keras'), or copy it again."
    )
