"""Signature of a Keras model, read off its inputs and outputs."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import keras

from training.errors import TrainingError
from training.private import node_of
from training.signature import ModelSignature, TensorSpec, check_names
from workflow.schema.dtypes import DTYPES
from workflow.schema.names import listed


def model_signature(model: keras.Model, names: Mapping[str, str] | None = None) -> ModelSignature:
    """Read the signature off a model; nothing is written or changed.

    Inputs have the names of the model's `keras.Input`s. Outputs have the keys of a dictionary of
    outputs, else the names of the layers that make them.

    Args:
        model: a functional or a built sequential model. A subclassed model becomes one by
            `keras.Model(inputs, subclassed(inputs))`.
        names: replacement names for some of the inputs.

    Raises:
        TrainingError: a model without declared inputs, an input or output that cannot be served
            under its own name as `(N, k)` with a dtype that Triton knows, or an input whose key in a
            dictionary is the name of another one.

    Example:
        >>> print(model_signature(model))
        userId int32 [N, 1] -> output float32 [N, 1]
    """
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        raise TrainingError(
            "Expected a functional model, or a sequential model with an Input, since its inputs "
            f"have names. Received: {model!r} of {type(model).__name__}. Wrap it: "
            "keras.Model(inputs, model(inputs)) with inputs made by keras.Input(name=...)."
        )
    renamed = names or {}
    _expect_keys(model, renamed)
    names_of_inputs = {t.name: renamed.get(t.name, t.name) for t in model.inputs}
    check_names("input", names_of_inputs)
    inputs = tuple(_spec("input", tensor, names_of_inputs[tensor.name]) for tensor in model.inputs)
    names_of_outputs = _output_names(model)
    check_names("output", {name: name for name in names_of_outputs})
    outputs = tuple(
        _spec("output", tensor, name)
        for tensor, name in zip(model.outputs, names_of_outputs, strict=True)
    )
    for side, specs in (("inputs", inputs), ("outputs", outputs)):
        _check_distinct(side, [spec.name for spec in specs])
    return ModelSignature(inputs, outputs)


def warn_if_not_servable(model: keras.Model) -> None:
    """Warn of a functional model that no export takes, before it is trained for hours."""
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        return
    try:
        model_signature(model)
    except TrainingError as error:
        warnings.warn(f"The model cannot be exported as it is. {error}", stacklevel=3)


def _expect_keys(model: keras.Model, renamed: Mapping[str, str]) -> None:
    """Refuse keys of a dictionary of inputs by which Keras would train on other columns than are served."""
    structure = None if isinstance(model, keras.Sequential) else model.input
    names = {tensor.name for tensor in model.inputs}
    for key, tensor in structure.items() if isinstance(structure, Mapping) else ():
        own = str(getattr(tensor, "name", key))  # a list is a pair, under the name of the column
        is_other = own != key and own not in renamed
        if is_other and (key in names or re.fullmatch(r"keras_tensor(_\d+)?", own)):
            raise TrainingError(
                "Expected inputs in a dictionary under their own names: Keras is given columns by the keys, and "
                f"a server by the names. Received: {own!r} as {key!r}. Write keras.Input(..., name={key!r})."
            )


def _output_names(model: keras.Model) -> list[str]:
    # A sequential model has no property `output` before it is called.
    structure = None if isinstance(model, keras.Sequential) else model.output
    if isinstance(structure, dict):
        # Keras flattens a dictionary by sorted key.
        names = sorted(structure)
        if [*map(id, model.outputs)] == [id(structure[name]) for name in names]:
            return names
        raise TrainingError(
            f"Expected one tensor for each key of the model's outputs. Received: {structure!r}."
        )
    operations = [node_of(tensor).operation for tensor in model.outputs]
    names = [operation.name for operation in operations]
    unnamed = [op.name for op in operations if _is_auto_named(op)]
    if len(names) > 1 and unnamed:
        raise TrainingError(
            "Expected a name for each of the model's outputs. Received: layers that Keras named "
            f"itself: {listed(unnamed)}. Give them name=..., or return a dictionary of outputs."
        )
    return names


def _is_auto_named(operation: Any) -> bool:
    """Whether the name is derived from the class, with or without a number: Dense, `dense_3`."""
    stem = re.sub(r"(_\d+)?$", "", operation.name)
    return stem.replace("_", "") == type(operation).__name__.lower()


def _spec(side: str, tensor: Any, name: str) -> TensorSpec:
    # Of an output only TensorFlow knows: Keras takes x * 5.0 for sparse.
    is_input = side == "input"
    if is_input and (getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False)):
        raise TrainingError(
            f"Expected the input {name!r} to be dense. Received: a sparse or ragged tensor. Take "
            "a list as a pair of inputs, values and row lengths: training.layers.EmbeddingBag."
        )
    shape = tuple(tensor.shape)
    if len(shape) != 2 or shape[0] is not None or shape[1] is None:
        remedy = "keras.Input(shape=(k,))" if is_input else "keras.layers.Reshape((k,))"
        raise TrainingError(
            f"Expected the {side} {name!r} of shape (None, k): any number of rows, k columns. "
            f"Received: {shape}. Use {remedy}."
        )
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if dtype not in DTYPES:
        remedy = "Give keras.Input one of them."
        if side == "output":
            remedy = "Under mixed precision give the last layer dtype='float32'."
        raise TrainingError(
            f"Expected the {side} {name!r} of a dtype among {', '.join(DTYPES)}. "
            f"Received: {dtype}. {remedy}"
        )
    return TensorSpec(name, dtype, shape)


def _check_distinct(side: str, names: list[str]) -> None:
    # TensorFlow renames an input whose name another one has, ignoring case.
    keys = [name.lower() if side == "inputs" else name for name in names]
    counts = Counter(keys)
    twice = [name for name, key in zip(names, keys, strict=True) if counts[key] > 1]
    if twice:
        case = ", and not by upper and lower case alone" if side == "inputs" else ""
        raise TrainingError(
            f"Expected distinct names of the model's {side}{case}. Received: {listed(twice)}. "
            "Give the layers another name=..., or return a dictionary of outputs."
        )
