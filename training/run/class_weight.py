"""Weights of rows in the loss, by their label."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.errors import TrainingError
from training.run.label_values import CHANCES, NUMBERED, function_of
from workflow.schema.names import did_you_mean, listed
from workflow.schema.python_number import python_number

# Losses whose labels are a value for each class, the largest of them for the row's own.
_BY_CLASS = (
    keras.losses.categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_hinge,
)


def weighted(
    data: Any, class_weight: Any, losses: Mapping[str, Any], classes: Mapping[str, int | None]
) -> Any:
    """The data with a weight for each row.

    Keras' own argument reads ahead on the host, which a loader on a GPU does not allow, rounds labels, and
    takes steps for classes.

    Args:
        data: pairs (x, y) of features and one label (N, 1), or several: a dataset, a `PyDataset`, or arrays.
        class_weight: label -> weight; other labels have weight 1. Of several, name -> such weights. None to
            leave the data as they are.
        losses: the loss of each output, or its losses, by its name, in the order of labels without names.
        classes: the width of each output by its name.

    Raises:
        TrainingError: data that is distributed, rows that already have weights, labels that are no classes, or
            weights that are below zero, not finite, or of labels that the losses do not take.

    Example:
        >>> data = tf.data.Dataset.from_tensors(({"userId": [[5], [6]]}, [[0], [1]]))
        >>> data = weighted(data, {1: 20.0}, {"": "binary_crossentropy"}, {"": 1})
        >>> _, _, weights = next(iter(data))
        >>> weights.numpy().tolist()
        [[1.0], [20.0]]
    """
    if class_weight is None:
        return data
    _check_all(class_weight, losses, classes)

    @tf.autograph.experimental.do_not_convert  # it would wrap the error
    def weigh(*batch: Any) -> tuple[Any, Any, Any]:
        return _with_weights(batch, class_weight, losses)

    if isinstance(data, tf.data.Dataset):
        return data.map(weigh)
    if isinstance(data, keras.utils.PyDataset):
        return _Weighted(data, weigh)
    if isinstance(data, (tuple, list)):
        return weigh(*data)
    raise TrainingError(
        "Expected data that is not distributed yet, to weigh rows by class_weight. "
        f"Received: {type(data).__name__}. Weigh them before, as triples "
        "(x, y, weights): strategy.distribute_datasets_from_function(lambda _: train_data.map(weigh))."
    )


class _Weighted(keras.utils.PyDataset):
    """Batches of another, each with its weights."""

    def __init__(self, data: keras.utils.PyDataset, weigh: Callable[..., Any]) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self._data = data
        self._weigh = weigh
        self.on_epoch_begin = data.on_epoch_begin
        self.on_epoch_end = data.on_epoch_end

    @property
    def num_batches(self) -> int | None:
        return self._data.num_batches

    def __getitem__(self, index: int) -> Any:
        return self._weigh(*self._data[index])


def _with_weights(
    batch: Sequence[Any], class_weight: Mapping[Any, Any], losses: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
    """The triple (x, y, weights) of a pair (x, y): see `weighted`."""
    if len(batch) > 2:
        raise TrainingError(
            "Expected pairs (x, y) in train_data, to weigh rows by class_weight. "
            "Received: triples, which have weights already, as of sample_weight. Leave one of the two out."
        )
    x, y = batch
    if len(losses) == 1:
        (loss,) = losses.values()
        return x, y, keras.tree.map_structure(lambda label: _weights(label, class_weight, loss), y)
    by_name = y if isinstance(y, Mapping) else dict(zip(losses, y, strict=True))
    weights = {n: _weights(by_name[n], class_weight.get(n, {}), losses[n]) for n in by_name}
    return x, y, weights if by_name is y else tuple(weights.values())


def _check_all(
    class_weight: Any, losses: Mapping[str, Any], classes: Mapping[str, int | None]
) -> None:
    """Raise TrainingError unless it has weights of at least zero for labels that the losses take."""
    if len(losses) == 1:
        (loss,) = losses.values()
        _check(class_weight, loss, next(iter(classes.values()), None))
        return
    of_outputs = isinstance(class_weight, Mapping) and len(class_weight) > 0
    unknown = [name for name in class_weight if name not in losses] if of_outputs else []
    if not of_outputs or unknown:
        first = next(iter(losses))
        raise TrainingError(
            f"Expected class_weight of each output by its name, {listed(losses)}. "
            f"Received: {class_weight!r}.{did_you_mean(unknown, losses)} "
            f"For example {{{first!r}: {{0: 1.0, 1: 20.0}}}}."
        )
    for name, weights in class_weight.items():
        _check(weights, losses[name], classes.get(name))


def _check(class_weight: Any, loss: Any, classes: int | None) -> None:
    is_mapping = isinstance(class_weight, Mapping)
    numbers = [*class_weight, *class_weight.values()] if is_mapping else []
    if (
        not numbers
        or not all(isinstance(python_number(n), (int, float)) for n in numbers)
        or not all(0 <= weight < math.inf for weight in class_weight.values())
    ):
        raise TrainingError(
            "Expected class_weight as a dictionary of label -> finite weight of at least 0. "
            f"Received: {class_weight!r}. For example {{0: 1.0, 1: 20.0}}."
        )
    for function in map(function_of, keras.tree.flatten(loss)):
        if function in CHANCES:
            expected = "0 and 1, or between them,"
            wrong_labels = [label for label in class_weight if not 0 <= label <= 1]
        elif classes and function in (*_BY_CLASS, NUMBERED):
            expected = f"the numbers of classes from 0 to {classes - 1},"
            wrong_labels = [label for label in class_weight if label not in range(classes)]
        else:
            continue
        if wrong_labels:
            raise TrainingError(
                f"Expected labels in class_weight that rows can have: {expected} with "
                f"{function.__name__}. Received: {listed(map(str, wrong_labels))}."
            )


def _weights(y: Any, class_weight: Mapping[Any, Any], loss: Any) -> Any:
    """The weight of each row of a label, or of each of its steps."""
    # Arrays stay arrays: a process that Keras forks to read a PyDataset cannot use TensorFlow.
    on, classes = (keras.ops, y) if tf.is_tensor(y) else (np, np.asarray(y))
    functions = [function_of(one) for one in keras.tree.flatten(loss)]
    if any(function in _BY_CLASS for function in functions):
        classes = on.argmax(classes, axis=-1)
    elif NUMBERED not in functions and len(classes.shape) != 1 and classes.shape[-1] != 1:
        if class_weight:
            shape = ", ".join("N" if n is None else str(n) for n in classes.shape)
            raise TrainingError(
                "Expected labels of one class each, to weigh them by class_weight. Received: labels of shape "
                f"({shape}) for {getattr(functions[0], '__name__', functions[0])}, which has one loss for all "
                "numbers of the last axis. Give weights of your own, as triples (x, y, weights)."
            )
        classes = classes[..., 0]  # as many weights as losses
    weights = on.ones_like(classes, dtype="float32")
    for label, weight in class_weight.items():
        weights = on.where(on.equal(classes, float(label)), np.float32(weight), weights)
    return weights
