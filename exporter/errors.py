"""The error of the exporter, and summaries of others' errors."""

from __future__ import annotations

import re


class ExportError(ValueError):
    """An export cannot work; nothing was written, and the text says what to change."""


# The most characters of another package's message before our own advice.
_LONGEST = 300


def in_a_line(error: Exception) -> str:
    r"""Shorten another package's error to a line of whole words, so that a sentence can follow.

    Keras marks the reason as bold, and lists the arguments of the layer's call below it.

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
    text = " ".join(reason.split())
    if len(text) > _LONGEST:
        start = text[: _LONGEST - 2]
        return (start.rpartition(" ")[0] or start[:-1]).rstrip(".,;:") + "..."
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
