"""Base of layers that take lists beside ids: pairs of values and row lengths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from training.layers.records_fits import RecordsFits


class TakesLists(RecordsFits):
    """A layer that Keras does not give to XLA once it takes lists, since XLA knows no sum of segments.

    On a GPU Keras compiles what its layers say can be compiled. A layer may take ids in one place and lists
    in another, so each call counts, and not the shapes of the first.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        if holds_lists((*args, *kwargs.values())):
            self.supports_jit = False
        return super().__call__(*args, **kwargs)


def holds_lists(given: Iterable[Any]) -> bool:
    """Whether one of a call's arguments is a list column, or has one among its columns.

    Example:
        >>> holds_lists([{"user": "ids", "tags": ("values", "nnzs")}])
        True
    """
    columns = (c for each in given for c in (each.values() if isinstance(each, dict) else [each]))
    return any(isinstance(column, (tuple, list)) for column in columns)
