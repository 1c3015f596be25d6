"""The exception of the loader."""

from __future__ import annotations


class LoaderError(ValueError):
    """Data or arguments that the loader cannot use.

    The message names the column, the file and the row group as far as they are known, and says
    how to mend it. Inside `model.fit` TensorFlow wraps errors of its input pipeline: there the
    same text arrives in a `tf.errors.InvalidArgumentError`.
    """


class DamagedError(LoaderError):
    """A row group that cannot be read, or whose values no tensor can hold.

    The kind of error that `on_bad_files="skip"` passes over.

    Attributes:
        where: the file, and the row group's number in it.
    """

    def __init__(self, message: str, where: tuple[str, int]) -> None:
        super().__init__(message)
        self.where = where
