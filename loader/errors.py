"""The exception of the loader."""

from __future__ import annotations


class LoaderError(ValueError):
    """Data or arguments that the loader cannot use.

    The message names the column, the file and the row group if they are known, and says how to fix
    the problem. Inside `model.fit` TensorFlow wraps errors of its input pipeline: there the same
    text arrives in a `tf.errors.InvalidArgumentError`.
    """


class DamagedError(LoaderError):
    """A row group that cannot be read, or whose values no tensor can hold.

    `on_bad_files="skip"` passes over errors of this kind.

    Attributes:
        where: the file, and the row group's number in it.
    """

    def __init__(self, message: str, where: tuple[str, int]) -> None:
        super().__init__(message)
        self.where = where
