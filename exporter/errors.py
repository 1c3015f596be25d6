"""The error of the exporter, and what it says of the errors of others."""

from __future__ import annotations

import re


class ExportError(ValueError):
    """An export that cannot work; nothing was written, and the text says what to change."""


def in_a_line(error: Exception) -> str:
    r"""What another package's error says, shortened to a line.

    Keras makes the reason bold, and lists below it what the layer was called with.

    Example:
        >>> text = "When calling Dense.\n\n\x1b[1mNo rows.\x1b[0m\n\nArguments received by Dense"
        >>> in_a_line(ValueError(text))
        'When calling Dense. No rows.'
    """
    reason = re.sub(r"\x1b\[\d+m", "", str(error)).partition("Arguments received by")[0]
    return " ".join(reason.split())[:300]
