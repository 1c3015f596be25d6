"""The errors of the workflow, and readable texts for all errors."""

from __future__ import annotations

import errno
import re

CHECK_DISK = "Check the free space and the permissions of the disk."
# The most characters of another package's message before our own advice.
_LONGEST = 300
# The place in onnxruntime's source and its function, which take more room than the reason behind them.
_PLACE = re.compile(
    r"\S+\.(?:cc|h):\d+ [^(]*\bonnxruntime::.*?\)(?:::<lambda\(.*?\)>)?(?: const)?(?: \[with [^]]*\])? "
)
# Of a panic in Rust over an exception of Python.
_INTERRUPT = re.compile(r"PyErr \{ type: <class '(KeyboardInterrupt|SystemExit)'>")
# Advice for a series of pandas in place of a frame.
SERIES_ADVICE = ' A row is a frame, frame.iloc[[0]], and so is a column, frame[["userId"]].'
# pandas makes floats of integers beside missing values; integers made of these would be other ids.
AS_INTEGERS = (
    "A float has lost the last digits of such a number. Read the column as integers, "
    'in pandas with dtype_backend="pyarrow", which keeps them beside missing values.'
)


class WorkflowError(ValueError):
    """A workflow was built or used in a way that cannot work; the text says how to fix it."""


class WorkflowFormatError(WorkflowError):
    """A saved workflow is damaged, or has content that no workflow can have."""


# Of a disk that is full, exceeds a quota or a limit of a file's size, or cannot be written.
OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def cannot_write(what: object, reason: object) -> str:
    """The text of an error for something that cannot be written, such as on a full disk.

    Example:
        >>> cannot_write("parquet to train", "No space left on device")
        'Expected to be able to write parquet to train. Received: No space left on device. Check the \
free space and the permissions of the disk.'
    """
    if isinstance(reason, IsADirectoryError):
        remedy = "Name a file in it."
    elif isinstance(reason, FileExistsError | NotADirectoryError):
        remedy = "A file is there, or a link that leads nowhere: remove it, or name another place."
    else:
        remedy = CHECK_DISK
    return f"Expected to be able to write {what}. Received: {reason}. {remedy}"


def first_line(error: BaseException) -> str:
    """An error's text without Polars' hints, which address its direct users.

    Example:
        >>> first_line(ValueError("no number."))
        'no number'
    """
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def unread(error: BaseException) -> str:
    """The first line of an error of reading data, and what to do about types inferred by Polars."""
    advice = (
        ". The column's type was inferred from the first rows: let polars.scan_csv(path, "
        "infer_schema_length=None) look at all of them, or name it in schema_overrides"
    )
    return first_line(error) + (advice if "infer_schema_length" in str(error) else "")


def expect_no_interrupt(error: BaseException) -> None:
    """Raise the interrupt that a panic of Polars hides: a call into Python that Ctrl+C has ended.

    Without this it would be taken for damage of the data.

    Raises:
        KeyboardInterrupt: the error is such a panic; SystemExit, if a handler of a signal has raised that.

    Example:
        >>> expect_no_interrupt(ValueError("no number"))
    """
    if hidden := _INTERRUPT.search(str(error)):
        raise (
            KeyboardInterrupt() if hidden[1] == "KeyboardInterrupt" else SystemExit(1)
        ) from error


def in_a_line(error: BaseException) -> str:
    r"""Shorten another package's error to a line of whole words, so that a sentence can follow.

    Keras marks the reason as bold, and lists the arguments of the layer's call below it; onnxruntime
    begins with the place in its source.

    Returns:
        At most 300 characters; a shortened text ends with "...", an empty one is "".

    Example:
        >>> text = "When calling Dense.\n\n\x1b[1mNo rows\x1b[0m\n\nArguments received by Dense"
        >>> in_a_line(ValueError(text))
        'When calling Dense. No rows.'
        >>> in_a_line(ValueError("const onnxruntime::Tensor& " * 20))[-30:]
        ' const onnxruntime::Tensor&...'
    """
    reason = re.sub(r"\x1b\[\d+m", "", str(error)).partition("Arguments received by")[0]
    text = _PLACE.sub("", " ".join(reason.split()))
    if len(text) > _LONGEST:
        start = text[: _LONGEST - 2]
        return (start.rpartition(" ")[0] or start[:-1]).rstrip(".,;:") + "..."
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
