"""The items nearest to vectors, found in the files of a version folder.

The same code runs in the server's step and in the process that proves it. Numpy and faiss only, Python
3.10.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# The index, and the items' ids in its order: whole numbers, or UTF-8 with the n + 1 places of its parts.
INDEX, NUMBERS, TEXTS, ENDS = "items.faiss", "ids.int64", "ids.utf8", "ids.ends"


class ItemSearch:
    """The search of a version folder.

    Args:
        folder: it has the files that `write_ids` and FAISS wrote.

    Attributes:
        is_text: whether ids are strings.
        width: the width of the vectors.

    Raises:
        RuntimeError: FAISS cannot read the index, or the files do not fit together.
    """

    def __init__(self, folder: Path) -> None:
        self._index = read_index(folder / INDEX)
        self.is_text = (folder / TEXTS).is_file()
        self._ends = np.fromfile(folder / (ENDS if self.is_text else NUMBERS), "<i8")
        self._text = np.fromfile(folder / TEXTS, np.uint8) if self.is_text else None
        self.width: int = self._index.d
        count = len(self._ends) - self.is_text
        if count != self._index.ntotal:
            raise RuntimeError(f"{folder} has {count} ids for {self._index.ntotal} vectors.")

    def answer(self, vectors: Array, k: int) -> dict[str, Array]:
        """The outputs of the step, see `nearest`; strings as bytes."""
        places, scores = nearest(self._index, vectors, k)
        return {"item": self._ids(places), "score": scores}

    def _ids(self, places: Array) -> Array:
        if self._text is None:
            return self._ends[places]
        ids = np.empty(places.size, object)
        bounds = zip(self._ends[places.ravel()], self._ends[places.ravel() + 1], strict=True)
        ids[:] = [self._text[begin:end].tobytes() for begin, end in bounds]
        return ids.reshape(places.shape)


def read_index(path: str | os.PathLike[str]) -> Any:
    """Read a FAISS index, mapped where FAISS can, so that processes share its memory.

    Raises:
        RuntimeError: there is no such file, or it is damaged.
    """
    return faiss.read_index(os.fspath(path), faiss.IO_FLAG_MMAP_IFC)


def write_ids(ids: Array, folder: Path) -> None:
    """Write the ids of items, int64 or strings as objects, in the order of the index."""
    if ids.dtype != object:
        ids.astype("<i8").tofile(folder / NUMBERS)
        return
    texts = [text.encode() for text in ids]
    np.cumsum([0, *map(len, texts)], dtype="<i8").tofile(folder / ENDS)
    (folder / TEXTS).write_bytes(b"".join(texts))


def nearest(index: Any, vectors: Array, k: int) -> tuple[Array, Array]:
    """Search an index, which need not compare all items.

    Args:
        index: of FAISS, by inner product.
        vectors: float32 (N, width).
        k: how many items.

    Returns:
        The items' places in the index, int64, and the scores that the index computes, float32, both
        (N, k), the best first; of equal scores the first place comes first. No item comes twice:
        where the index finds fewer than k, the first of the other items follow, with the score -inf.
        To a vector with NaN or infinity the answer is the first k items with the score NaN, as that
        of the exact search to a NaN.
    """
    known = np.isfinite(vectors).all(axis=1)
    # A graph is not searched with a NaN, which is neither near nor far.
    asked = np.ascontiguousarray(np.where(known[:, None], vectors, 0), np.float32)
    scores, places = index.search(asked, k)
    places[~known], scores[~known] = np.arange(k), np.nan
    for row in np.flatnonzero((places < 0).any(axis=1)):
        missing = places[row] < 0
        others = np.setdiff1d(np.arange(k), places[row, ~missing])
        places[row, missing], scores[row, missing] = others[: missing.sum()], -np.inf
    order = np.lexsort((places, -scores))
    return np.take_along_axis(places, order, 1), np.take_along_axis(scores, order, 1)
