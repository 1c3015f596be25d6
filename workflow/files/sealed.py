"""JSON documents that contain a checksum of their own bytes, so that no changed byte is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from workflow.expressions.program.safetensors_file import FormatError, parse_json

_UNSET = "0" * 64


def sealed(document: Mapping[str, Any]) -> bytes:
    """The text of a document with a key `sum`: the sha256 of the text with zeros in its place.

    Example:
        >>> unsealed(sealed({"format": 1}), "a.json")
        {'format': 1}
    """
    text = json.dumps({"sum": _UNSET, **document}, allow_nan=False, indent=1).encode()
    return text.replace(_UNSET.encode(), _sum(text).encode(), 1)


def unsealed(text: bytes, where: str) -> dict[str, Any]:
    """The document in a text from `sealed`.

    Raises:
        FormatError: not a JSON object with a checksum, or a text that does not match its checksum.
    """
    document = parse_json(text, where)
    stated = document.pop("sum", None) if isinstance(document, dict) else None
    if not isinstance(stated, str) or len(stated) != len(_UNSET) or not stated.isascii():
        raise FormatError(f"{where}: expected a JSON object with a checksum of its own text.")
    if (checksum := _sum(text.replace(stated.encode(), _UNSET.encode(), 1))) != stated:
        raise FormatError(
            f"{where}: expected text with the checksum {stated[:16]}.... Received: text with the checksum "
            f"{checksum[:16]}.... It is damaged or was edited: copy the original, or write it again."
        )
    return dict(document)


def _sum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
