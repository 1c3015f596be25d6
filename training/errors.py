"""The error that training raises for a mistake of its caller."""

from __future__ import annotations

import os

from workflow.errors import cannot_write


class TrainingError(ValueError):
    """A model, a layer or a training run cannot work as requested.

    The message says what was expected, what was received and how to fix it.
    """


def unwritable(path: str | os.PathLike[str], error: Exception) -> TrainingError:
    """The error for a file or folder that cannot be written, such as on a full disk.

    Args:
        path: the place that the caller named; a complete file there is unchanged.
        error: an error of the file system, or one of TensorFlow, which writes files itself.

    Example:
        >>> print(unwritable("items.parquet", OSError(28, "No space left on device")))
        Expected to be able to write items.parquet. Received: [Errno 28] No space left on device. Check \
the free space and the permissions of the disk.
    """
    # TensorFlow's messages begin with names in the graph and of a temporary file.
    text = getattr(error, "message", "").rpartition("}} ")[2].rpartition("; ")[2]
    reason = text.partition("\n")[0].partition(" [Op:")[0] or error
    return TrainingError(cannot_write(path, reason))


def expect_tensorflow(backend: str) -> None:
    """Raise TrainingError unless Keras computes with TensorFlow.

    Args:
        backend: the name of Keras' backend.
    """
    if backend != "tensorflow":
        raise TrainingError(
            f"Expected TensorFlow as Keras' backend. Received: {backend}. Set the environment variable "
            "KERAS_BACKEND=tensorflow before Python starts. A model that was trained with another backend and "
            "saved as .keras is read there as it is."
        )
