"""The error of the exporter."""

from __future__ import annotations


class ExportError(ValueError):
    """An export cannot work; nothing was written, and the text says what to change."""
