"""A model as a SavedModel with one named signature and each variable once."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from training.canonical import make_canonical
from training.column_facts.recorded_fits import write_fits
from training.errors import TrainingError, expect_tensorflow, unwritable
from training.keras_signature import model_signature
from training.layers.records_fits import fits_of_model
from training.private import named_by_position
from training.quiet import quiet
from training.signature import ModelSignature
from training.tables.bags import for_few_rows
from workflow.data.object_stores import expect_local
from workflow.files.durable import (
    exclusive,
    lock,
    make_folder,
    partial_of,
    partials_of,
    removed_if_empty,
    set_mode,
    sync,
    sync_tree,
)


def save_model(
    model: keras.Model, path: str | Path, *, signature: str = "serving_default"
) -> ModelSignature:
    """Write a SavedModel that serves the model's predictions.

    It has exactly one signature, in inference mode, whose inputs have exactly the names of the
    model's `keras.Input`s, and whose outputs are named as in `model_signature`. It contains the
    model's weights once and nothing of the optimizer, so it is as large as the weights. TensorFlow
    2 and the C++ loader of a server read it. The model is unchanged.

    The folder appears complete or not at all: it is written beside its target path, synced to disk,
    and renamed. If the process is killed before that, the next call with this path removes what it left.

    Args:
        model: a model that `model_signature` accepts.
        path: the folder to make; its parent is made too.
        signature: the name of the signature.

    Returns:
        The names, dtypes and shapes of the signature.

    Raises:
        TrainingError: the path exists or cannot be written, or the model cannot be served
            under names (see `model_signature`).

    Example:
        >>> print(save_model(model, "models/movielens_tf/1/model.savedmodel"))
        userId int32 [N, 1] -> output float32 [N, 1]
    """
    expect_local(path, TrainingError)
    described = model_signature(model)
    path = Path(path)
    with removed_if_empty(path.parent), _staged(path) as folder:
        function = concrete_function(network_function(model, described), described)
        described = with_strings(described, function)
        module = network_state(model, function)
        try:
            write_saved_model(module, folder, {signature: function})
            write_fits(folder, fits_of_model(model))
        except (OSError, tf.errors.OpError) as error:
            raise unwritable(path, error) from error
    return described


def write_saved_model(state: tf.Module, folder: Path, signatures: Mapping[str, Any]) -> None:
    """Write functions and their resources, without TensorFlow's notes, which name the folder.

    Args:
        state: the resources of the functions.
        folder: where to write.
        signatures: concrete functions by name.
    """
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with quiet("absl", logging.ERROR), named_by_position(state.variables):
        tf.saved_model.save(state, str(folder), signatures=dict(signatures), options=options)
    make_canonical(folder)


def network_function(model: keras.Model, signature: ModelSignature) -> Callable[..., Any]:
    """The model in inference mode as a function of named tensors, to a dictionary of outputs.

    Args:
        model: a model that `model_signature` accepts.
        signature: its signature.

    Example:
        >>> network_function(model, model_signature(model))(userId=tf.constant([[1]]))
        {'output': <tf.Tensor: ...>}
    """
    expect_tensorflow(keras.backend.backend())
    # A sequential model takes one tensor, and has no property `input` before it is called.
    structure = model.inputs[0] if isinstance(model, keras.Sequential) else model.input

    def serve(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        flat = [tensors[spec.name] for spec in signature.inputs]
        inputs = keras.tree.pack_sequence_as(structure, flat)
        with for_few_rows():
            outputs = keras.tree.flatten(model(inputs, training=False))
        named = zip(signature.outputs, outputs, strict=True)
        return {spec.name: _dense(spec.name, value) for spec, value in named}

    return serve


def _dense(name: str, value: Any) -> tf.Tensor:
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        raise TrainingError(
            f"Expected the output {name!r} to be dense. Received: a {type(value).__name__}. Return "
            "tf.sparse.to_dense(...), or .to_tensor(shape=[None, k]) of a ragged tensor."
        )
    return value


def concrete_function(function: Callable[..., Any], signature: ModelSignature) -> Any:
    """A function of named tensors, traced for the inputs of a signature."""
    specs = {
        spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name)
        for spec in signature.inputs
    }
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def with_strings(signature: ModelSignature, function: Any) -> ModelSignature:
    """The signature with the strings that Keras has as numbers, as those of `StringLookup(invert=True)`.

    Args:
        signature: the signature of a model.
        function: the model's concrete function.
    """
    outputs = tuple(
        replace(output, dtype="string")
        if function.structured_outputs[output.name].dtype == tf.string
        else output
        for output in signature.outputs
    )
    return replace(signature, outputs=outputs)


def network_state(model: keras.Model, function: Any) -> tf.Module:
    """Resources that a SavedModel of the model must hold: each variable once, and its tables.

    Args:
        model: the model.
        function: the concrete function that calls it. Variables that it does not use are left out,
            such as the random states of layers for training; those that it uses are taken also where the
            model does not know them, such as the state of a metric within a layer.
    """
    captures = {id(tensor) for tensor in function.captured_inputs}
    module = tf.Module()
    # Plain tf.Variables, each tracked by one name: a checkpoint contains a variable once for each
    # path to it, and C++ loaders do not find a Keras variable's value.
    variables = (*(variable.value for variable in model.variables), *function.variables)
    by_handle = {id(variable.handle): variable for variable in variables}
    module.weights = [variable for handle, variable in by_handle.items() if handle in captures]
    module.resources = _resources(model)
    return module


def _resources(model: keras.Model) -> list[Any]:
    """Lookup tables and similar objects, which a SavedModel must own to restore."""
    kind = tf.saved_model.experimental.TrackableResource
    return [node for node in tf.train.TrackableView(model).descendants() if isinstance(node, kind)]


@contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A folder beside `path` that becomes `path` when the block ends without an error."""
    if path.exists():
        raise TrainingError(
            f"Expected a path that does not exist. Received: {path}. "
            "Remove it, or choose another folder or version."
        )
    hidden = path.with_name(f".{path.name}")
    staging = partial_of(hidden)
    with ExitStack() as stack:
        try:
            make_folder(path.parent)
            _remove_leftovers(hidden)
            stack.enter_context(exclusive(staging))
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            yield staging
            # A server that runs as another user has to read it, whatever the umask.
            set_mode(staging, 0o755)
            _put_into_place(staging, path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _remove_leftovers(path: Path) -> None:
    """Remove folders that killed processes left; those of others that still write are locked."""
    for folder in filter(Path.is_dir, partials_of(path)):
        with suppress(OSError), _opened(folder) as descriptor:
            if lock(descriptor):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _put_into_place(staging: Path, path: Path) -> None:
    try:
        sync_tree(staging)
        staging.rename(path)
        sync(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
