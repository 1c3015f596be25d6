"""Checks of data against a model's inputs, before the first step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from loader import KerasSequenceLoader
from training.column_facts.input_arrays import expect_fitting
from training.errors import TrainingError
from training.run.label_check import check_labels
from training.run.weight_check import check_weights
from workflow.schema.names import did_you_mean, listed

# Features, labels and weights.
_PARTS = 3

# Data may have no end.
_SEARCHED = 10_000


def check_data(model: keras.Model, data: Any, argument: str, losses: Mapping[str, Any]) -> None:
    """Validate batches against the model's named inputs: columns, dtypes, shapes, and a label.

    Keras itself finds a missing column, but silently casts ids of a float dtype to integers.
    Nothing is read from a `tf.data.Dataset`. Data without column names, and models without named
    inputs, are left to Keras.

    Args:
        model: the model to train.
        data: as for `train`.
        argument: the caller's name for the data.
        losses: the loss of each output, or its losses, by its name, which is "" of the only one; None for
            an output that is not trained.

    Raises:
        TrainingError: data of an unknown kind, known to have no rows, without a label, with weights of another
            shape or not of each output, or that does not fit the inputs.

    Example:
        >>> model = keras.Model({"age": (age := keras.Input((1,), name="age"))}, age)
        >>> check_data(model, ({"age": np.zeros((5, 1))}, np.zeros(5)), "train_data", {"": "mse"})
    """
    _check_rows(data, argument)
    batch = first_batch(data, argument)
    if batch is None:
        return
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    if y is None:
        raise TrainingError(
            f"Expected {argument} of features and labels. Received: features alone. Name the "
            'label: KerasSequenceLoader(..., label_names=["rating"]), or give pairs (x, y).'
        )
    check_labels(model, y, weight, data, argument)
    check_weights(model, weight, losses, argument)
    if any(_kind(label) == "string" for label in keras.tree.flatten(y)):
        raise TrainingError(
            f"Expected numbers as labels in {argument}. Received: strings. Make them 0 and 1 in "
            "the workflow: ops.LambdaOp(lambda label: (label == 'yes').cast('int8'))."
        )
    inputs = getattr(model, "input", None)
    if isinstance(inputs, Mapping) and isinstance(x, Mapping):
        _check_columns(inputs, x, argument)


def check_end(data: Any, argument: str) -> None:
    """Raise TrainingError if an epoch of the data has no end, which Keras would wait for."""
    if _batches(data) == tf.data.INFINITE_CARDINALITY:
        raise TrainingError(
            f"Expected {argument} with an end, since it is read to the end in each epoch. Received: a "
            f"{type(data).__name__} without one. Leave out repeat(), give the steps of an epoch, "
            "data.take(steps), or use compile_model and model.fit(steps_per_epoch=...)."
        )


def _check_rows(data: Any, argument: str) -> None:
    """Raise TrainingError if data has no rows, as far as that is known before it is read."""
    # Features may have no values although there are rows, whose lists are empty.
    labels = keras.tree.flatten(data[1:2]) if isinstance(data, (tuple, list)) else []
    if _batches(data) == 0 or any(np.shape(label)[:1] == (0,) for label in labels):
        raise no_rows(argument)


def no_rows(argument: str) -> TrainingError:
    """The error about data without rows, for which Keras reports nothing."""
    return TrainingError(
        f"Expected {argument} with at least one row. Received: none. See which rows its source has, and what "
        "filters or skips them."
    )


def _batches(data: Any) -> int | None:
    """The batches of an epoch; `tf.data.INFINITE_CARDINALITY` without an end, None if they are not known."""
    if isinstance(data, keras.utils.PyDataset):
        return tf.data.INFINITE_CARDINALITY if data.num_batches is None else data.num_batches
    return int(data.cardinality()) if isinstance(data, tf.data.Dataset) else None


def first_nan(data: Any) -> tuple[int, list[str]]:
    """The first batch that contains NaN or infinity, and its columns that do.

    The search takes as long as reading the data up to there. It uses up an epoch of a loader, but
    for its first batch.

    Returns:
        The batch's number from 0, and the columns, "the label" and "the weights of rows" among them; no
        columns if no batch has any.

    Example:
        >>> data = tf.data.Dataset.from_tensors(({"age": [[31.0], [float("nan")]]}, [[0], [1]]))
        >>> first_nan(data)
        (0, ["column 'age'"])
    """
    if isinstance(data, KerasSequenceLoader) and (columns := _columns_with_nan(data.peek())):
        return 0, columns
    batches = iter([tuple(data)] if isinstance(data, (tuple, list)) else data)
    for number, batch in enumerate(islice(batches, _SEARCHED)):
        if columns := _columns_with_nan(batch):
            return number, columns
    return 0, []


def _columns_with_nan(batch: Any) -> list[str]:
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    named = {f"column {name!r}": x[name] for name in x} if isinstance(x, Mapping) else {"x": x}
    labels = {"the label": y, "the weights of rows": weight}
    return [name for name, value in {**named, **labels}.items() if _has_nan(value)]


def _has_nan(value: Any) -> bool:
    arrays = [np.asarray(part) for part in keras.tree.flatten(value)]
    return any(not np.isfinite(a).all() for a in arrays if a.dtype.kind == "f")


def first_batch(data: Any, argument: str) -> Any:
    """First batch, as arrays or symbols; None if it cannot be known in advance."""
    if isinstance(data, tf.data.Dataset):
        return _symbols(data)
    if isinstance(data, keras.utils.PyDataset):
        return data[0]
    if isinstance(data, tf.distribute.DistributedDataset):
        return None
    if isinstance(data, (tuple, list)):
        batch = keras.tree.map_structure(np.asarray, tuple(data))
        if 1 <= len(batch) <= _PARTS and all(array.ndim for array in keras.tree.flatten(batch)):
            return batch
    raise TrainingError(
        f"Expected {argument} as a KerasSequenceLoader, a tf.data.Dataset, a "
        "keras.utils.PyDataset or a tuple of arrays (x, y). "
        f"Received: {type(data).__name__}. For parquet files or a Polars frame: "
        "KerasSequenceLoader(paths_or_frame, batch_size=65536, label_names=[...])."
    )


def _symbols(data: tf.data.Dataset) -> Any:
    """A batch as a step sees it: on a GPU only the parts cross into the step."""
    elements: list[Any] = []

    def step(batches: Any) -> None:
        elements.append(batches.get_next())

    # An iterator, not a batch: the GPU loader makes its batches where they are taken.
    batches = tf.data.IteratorSpec(data.element_spec)
    tf.function(step, autograph=False).get_concrete_function(batches)
    return elements[0]


def _check_columns(inputs: Mapping[str, Any], x: Mapping[str, Any], argument: str) -> None:
    missing = [name for name in inputs if name not in x]
    if missing:
        raise TrainingError(
            f"Expected the columns {listed(inputs)} in {argument}, as the model does. "
            f"Received: {listed(x)}; missing: {listed(missing)}."
            f"{did_you_mean(missing, x)} "
            "Tag them in the workflow, as ops.AddTags(['continuous']) does, or name them in the "
            "loader's cat_names or cont_names."
        )
    more = [name for name in x if name not in inputs]
    if more:
        # Keras only warns, sorts the columns by name, and assigns them to inputs by position.
        raise TrainingError(
            f"Expected the columns {listed(inputs)} alone in {argument}, as the model does: "
            f"Keras would confuse others with them. Received also: {listed(more)}. "
            "Make a model that takes them, as models.mlp(workflow.output_schema) does, or leave them "
            "out: name the others in the loader's cat_names and cont_names."
        )
    for name, expected in inputs.items():
        if _is_pair(expected) != _is_pair(x[name]):
            of_model, of_data = map(_values_of, (expected, x[name]))
            remedy = (
                "A list is a pair (values, row lengths)."
                if "single values" in (of_model, of_data)
                else f'A loader pads lists with sparse_names=["{name}"], sparse_as_dense=True.'
            )
            raise TrainingError(
                f"Expected {of_model} in column {name!r} of {argument}, as the model does. "
                f"Received: {of_data}. {remedy}"
            )
        for what, (of_model, of_data) in _parts(name, expected, x[name]):
            _check_tensor(what, of_model, of_data, argument)


def _is_pair(column: Any) -> bool:
    return isinstance(column, (tuple, list))


def _values_of(column: Any) -> str:
    if _is_pair(column):
        return "a list"
    width = tuple(column.shape)[1:]
    return "single values" if width in ((), (1,)) else f"{width[0]} values a row"


def _parts(name: str, expected: Any, value: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if not _is_pair(expected):
        yield f"column {name!r}", (expected, value)
        return
    for what, pair in zip(
        ("values", "row lengths"), zip(expected, value, strict=True), strict=True
    ):
        yield f"the {what} of column {name!r}", pair


def _check_tensor(what: str, expected: Any, tensor: Any, argument: str) -> None:
    expected_kind, kind = _kind(expected), _kind(tensor)
    # An integer may stand for a float, but an id is never a fraction.
    if kind != expected_kind and (expected_kind, kind) != ("float", "integer"):
        raise TrainingError(
            f"Expected {what} of {argument} to be of {_dtype(expected)}, as the model does. "
            f"Received: {_dtype(tensor)}. Cast it where the data is made "
            f"(workflow.output_dtypes), or give the model an input of that dtype."
        )
    if isinstance(tensor, np.ndarray):
        expect_fitting(tensor, expected.dtype, f"{what} of {argument}")
    columns = tuple(expected.shape)[1:]
    if len(columns) == 1 and columns[0] is not None:
        width = tuple(tensor.shape)[1:]
        if width and width != columns and None not in width:
            raise TrainingError(
                f"Expected {what} of {argument} of shape (rows, {columns[0]}), as the model does. "
                f"Received: (rows, {', '.join(map(str, width))})."
            )


def _dtype(tensor: Any) -> str:
    # Keras knows neither NumPy's strings of fixed length nor its objects.
    kind = getattr(tensor.dtype, "kind", "")
    return (
        "string" if kind in {"U", "S", "O"} else str(keras.backend.standardize_dtype(tensor.dtype))
    )


def _kind(tensor: Any) -> str:
    """Integer, float, string or bool."""
    kind = _dtype(tensor).rstrip("0123456789")
    return {"int": "integer", "uint": "integer", "bfloat": "float"}.get(kind, kind)
