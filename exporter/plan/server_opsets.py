"""The newest operations of each onnxruntime, with which another server is named."""

from __future__ import annotations

import re

from exporter.errors import ExportError

# From a minor version of onnxruntime 1 on: the newest opset of ai.onnx and of ai.onnx.ml. Each was asked
# to load models of every opset, which it does up to the newest that it was released for.
_FROM = {17: (20, 4), 18: (21, 5), 21: (22, 5), 23: (23, 5), 24: (25, 5), 25: (26, 5)}
_OLDEST, _ASKED = min(_FROM), 31


def newest_opsets(version: str | None) -> dict[str, int]:
    """The newest opset by domain that an onnxruntime loads; none are known of versions after 1.31.

    Args:
        version: such as "1.18" or "1.18.1"; None for no limit.

    Raises:
        ExportError: no version, or one that is too old for the preprocessing.

    Example:
        >>> newest_opsets("1.18.1")
        {'': 21, 'ai.onnx.ml': 5}
    """
    if version is None:
        return {}
    match = re.fullmatch(r"1\.(\d{1,3})(\.\d+)?", version) if isinstance(version, str) else None
    minor = int(match[1]) if match else 0
    if minor < _OLDEST:
        raise ExportError(
            f'Expected onnxruntime as text, the version of the server, such as "1.23", from 1.{_OLDEST} '
            f"on, the oldest that has the operations of the preprocessing. Received: {version!r}."
        )
    if minor > _ASKED:
        return {}
    opset, of_trees = _FROM[max(number for number in _FROM if number <= minor)]
    return {"": opset, "ai.onnx.ml": of_trees}
