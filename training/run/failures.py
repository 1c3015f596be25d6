"""Failures inside TensorFlow's steps, turned into errors that a user can fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from loader import LoaderError
from training.errors import TrainingError
from training.run.label_values import no_such_class

_NO_CLASS = re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")
_NO_ROW = re.compile(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)")

# The integer to which TensorFlow casts NaN.
_NOT_A_NUMBER = {str(-(2**63)): "NaN, a null of a float column"}
_OTHER_SHAPE = re.compile(
    r"must have the same (?:shape|rank).*target\.shape=(\(.*?\)), output\.shape=(\(.*?\))"
)


@contextmanager
def explained(model: keras.Model) -> Iterator[None]:
    """Turn errors of the block's steps into those of the loader and of training.

    Raises:
        LoaderError: the data could not be read; the text is the loader's own.
        TrainingError: no memory for the model, its optimizer or a batch, an id that a table of Keras
            does not have, a class that the output does not have, labels of another shape than the
            output's where the loss compares them, or a `train_step` of the user's that leaves out the
            metrics.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        match = re.search(
            r"(?:LoaderError|DamagedError): (.*?)(?=\n(?:Traceback|\n|\t)|$)", str(error), re.DOTALL
        )
        if match is not None:
            raise LoaderError(match[1]) from error
        if id_beyond := _NO_ROW.search(str(error)):
            raise TrainingError(
                f"Expected ids from 0 to {int(id_beyond[2]) - 1}, as their table has {id_beyond[2]} rows. Received: "
                f"{id_beyond[1]}. Take the rows of each table, such as the input_dim of an Embedding, from "
                "workflow.get_embedding_sizes, and train that model."
            ) from error
        beyond = _NO_CLASS.search(str(error))
        if beyond is None:
            raise
        raise no_such_class(int(beyond[2]), _NOT_A_NUMBER.get(beyond[1], beyond[1])) from error
    except ValueError as error:
        if shapes := _OTHER_SHAPE.search(str(error)):
            raise TrainingError(
                f"Expected labels of the shape of the model's output, {shapes[2]}, for "
                f"loss={model.loss!r}. Received: {shapes[1]}. For labels that are numbers of classes, with "
                'a unit of the output for each class: loss="sparse_categorical_crossentropy".'
            ) from error
        if "the metric has not yet been built" not in str(error):
            raise
        raise TrainingError(
            f"Expected a train_step that computes the metrics: self.compute_metrics(x, y, y_pred). "
            f"Received: that of {type(model).__name__}, which does not. Use metrics=[]."
        ) from error
    except tf.errors.ResourceExhaustedError as error:
        weights, optimizers = (_gigabytes(part) for part in (model, model.optimizer))
        raise TrainingError(
            f"Expected memory to train {model.name!r}: its weights take {weights:.2f} GB, the state of "
            f"{model.optimizer.name!r} {optimizers:.2f} GB, and a batch's vectors and gradients "
            f"more. Received: out of memory. Use a smaller batch, narrower vectors "
            "(max_embedding_dim), fewer ids (ops.Categorify(max_size=...), ops.HashBucket) or an "
            "optimizer with less state (SGD none, Adagrad as much as the weights, Adam twice)."
        ) from error


def _gigabytes(owner: keras.Model | keras.optimizers.Optimizer) -> float:
    sizes = (tf.size(v.value, tf.int64) * v.value.dtype.size for v in owner.variables)
    return float(sum(sizes)) / 1e9
