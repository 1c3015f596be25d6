"""Random damage of files and documents."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(
        ["userId", "int64", "string", "Categorify", "add", "lookup", "source", "../x"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["table", "float", "value", "dtype"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@contextlib.contextmanager
def kept(path: Path) -> Iterator[bytes]:
    """The file's bytes, put back afterwards."""
    raw = path.read_bytes()
    try:
        yield raw
    finally:
        path.write_bytes(raw)


def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """A few bytes changed, and perhaps some cut off or added."""
    changed = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    end = draw(st.integers(0, len(raw)) | st.just(len(raw)))
    return bytes(changed[:end]) + draw(st.binary(max_size=3))


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    yield path
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in items:
            yield from places(value, (*path, key))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    target = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return changed


def with_another_value(data: st.DataObject, document: Any) -> Any:
    """The document with any value in the place of one of its own."""
    place = data.draw(st.sampled_from(list(places(document))))
    return with_value(document, place, data.draw(JSON_VALUES))
