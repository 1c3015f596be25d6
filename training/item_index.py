"""A FAISS index of a catalogue, which finds most of the nearest items without comparing all."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from training.errors import TrainingError
from training.item_vectors import ItemVectors
from workflow.errors import in_a_line
from workflow.first_use import what_is_missing
from workflow.progress.stage import at_work
from workflow.schema.column import Array
from workflow.schema.own_names import OwnNames

# Of a file with an index; another text is a factory string.
_SUFFIX = ".faiss"
# The parameters that FAISS keeps in the file; others, such as max_codes, would be lost on the way to a server.
_KEPT = ("nprobe", "efSearch", "k_factor", "k_factor_rf")
_PLACE = re.compile(r"^Error in .* at \S+:\d+: (Error: )?", re.DOTALL)
# Items that an index in a file is tried with.
_TRIED = 100
# Scores that differ by less, relative to the score or to 1, are equal to a count of found items.
_ROUNDING = 1e-6


@dataclass(frozen=True, repr=False, eq=False)
class ItemIndex(metaclass=OwnNames):
    """A catalogue and an index of its vectors, by inner product.

    Attributes:
        items: the catalogue.
        description: the factory string or the file, and the search parameters.
        index: the `faiss.Index`, whose numbers are places in the catalogue.

    Example:
        >>> items = ItemVectors(np.array([7, 8]), np.eye(2, dtype="float32"))
        >>> ItemIndex.of(items, "HNSW32").nearest(np.array([[0.1, 0.9]], "float32"), 1)[0]
        array([[8]])
    """

    items: ItemVectors
    description: str
    index: Any

    @classmethod
    def of(
        cls, items: ItemVectors, index: str | os.PathLike[str], search: str | None = None
    ) -> ItemIndex:
        """Build an index, or read one from a file.

        It is built by one thread, so that equal vectors give an equal file.

        Args:
            items: the catalogue.
            index: a factory string of FAISS such as "HNSW32" or "IVF1024,Flat", or the path of a file
                `.faiss` with the items in the catalogue's order.
            search: parameters of the search in FAISS' syntax, such as "efSearch=64", "nprobe=16", or
                several with commas between them.

        Raises:
            TrainingError: FAISS is missing, cannot build or read the index, or does not know a
                parameter; or the index is of other items, has ids of its own, or is not by inner product.
        """
        is_file = os.fspath(index).endswith(_SUFFIX)
        faiss_index = _read(Path(index)) if is_file else _built(items, os.fspath(index))
        described = ", ".join(filter(None, (os.fspath(index), search)))
        _expect_of(items, faiss_index, described)
        _set_parameters(faiss_index, described, search)
        if is_file:
            _expect_places(items, faiss_index, described)
        return cls(items, described, faiss_index)

    def __repr__(self) -> str:
        return f"ItemIndex({self.description}, {self.items})"

    def nearest(self, queries: Array, k: int) -> tuple[Array, Array]:
        """The nearest items that the index finds.

        Args:
            queries: float32 (N, width).
            k: how many items.

        Returns:
            The items' ids and the scores that the index computes, both (N, k), the best first. Where
            the index finds fewer than k, others follow, with the score -inf.

        Raises:
            TrainingError: as `ItemVectors.nearest`.
        """
        self.items.expect(k, queries.shape[-1])
        places, scores = _searching().nearest(self.index, queries, k)
        return self.items.ids[places], scores

    def recall(self, queries: Array, k: int) -> float:
        """The share of the nearest items, by an exact search, that the index finds.

        Args:
            queries: float32 (N, width), at least one.
            k: how many items.

        Example:
            >>> items = ItemVectors(np.array([7, 8]), np.eye(2, dtype="float32"))
            >>> ItemIndex.of(items, "Flat").recall(items.vectors, 1)
            1.0
        """
        places, _ = _searching().nearest(self.index, queries, k)
        return recall(self.items, queries, places)

    @cached_property
    def file_bytes(self) -> int:
        """The bytes of the index in a file."""
        sizes: list[int] = []
        faiss = _searching().faiss
        faiss.write_index(
            self.index, faiss.PyCallbackIOWriter(lambda part: sizes.append(len(part)))
        )
        return sum(sizes)

    def write(self, folder: Path) -> None:
        """Write the files that the server's step reads: the index and the ids."""
        search = _searching()
        search.faiss.write_index(self.index, str(folder / search.INDEX))
        search.write_ids(self.items.ids, folder)


def recall(items: ItemVectors, queries: Array, places: Array) -> float:
    """The share of the nearest items that lists have; an item of an equal score is as good.

    Args:
        items: the catalogue.
        queries: float32 (N, width), of which rows with NaN or infinity do not count.
        places: the items of the lists, (N, k), as places in the catalogue; -1 for none.
    """
    is_finite = np.isfinite(queries).all(axis=1)
    queries, places = queries[is_finite], places[is_finite]
    if not len(queries):
        return 1.0
    faiss = _searching().faiss
    best, _ = faiss.knn(queries, items.vectors, places.shape[1], metric=faiss.METRIC_INNER_PRODUCT)
    worst = best[:, -1:].astype(np.float64)
    scores = np.einsum("nkw,nw->nk", items.vectors[places].astype(np.float64), queries)
    right = (scores >= worst - _ROUNDING * np.maximum(1, np.abs(worst))) & (places >= 0)
    return float(right.mean())


def _searching() -> Any:
    """The module that also searches in the server."""
    try:
        from triton_models.nearest_items import search  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise TrainingError(what_is_missing(error) or str(error)) from error
    return search


def _built(items: ItemVectors, description: str) -> Any:
    faiss = _searching().faiss
    at_work("build the index")
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        index = faiss.index_factory(items.width, description, faiss.METRIC_INNER_PRODUCT)
        index.train(items.vectors)
        index.add(items.vectors)
    except (RuntimeError, MemoryError) as error:
        raise TrainingError(
            'Expected an index that FAISS can build, by a factory string such as "HNSW32" or '
            f'"IVF1024,Flat", or the path of a file {_SUFFIX}. Received: {description!r} for '
            f"{len(items.ids):,} items of width {items.width}, and FAISS says: {_reason(error)} "
            "A small catalogue needs fewer lists (IVF) or no quantization, and up to a hundred "
            "thousand items no index at all."
        ) from error
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _set_parameters(index: Any, description: str, search: str | None) -> None:
    """Set the parameters of a search, and search once, since FAISS checks them then."""
    searching = _searching()
    named = [parameter.partition("=")[0] for parameter in (search or "").split(",") if search]
    lost = [name for name in named if name.rpartition("quantizer_")[2] not in _KEPT]
    expected = (
        f"Expected parameters among {', '.join(_KEPT)}, those of quantizers as quantizer_..., such "
        'as search="efSearch=64" for HNSW or "nprobe=16" for IVF. '
        f"Received: {description}; "
    )
    if lost:
        raise TrainingError(f"{expected}{lost[0]!r} is not kept in the file of an index.")
    try:
        searching.faiss.ParameterSpace().set_index_parameters(index, search or "")
        searching.nearest(index, np.zeros((1, index.d), np.float32), 1)
    except RuntimeError as error:
        raise TrainingError(f"{expected}{_reason(error)}") from error


def _read(path: Path) -> Any:
    if not path.is_file():
        raise TrainingError(f"Expected an index of FAISS in {path}. Received: no such file.")
    try:
        # Not mapped: FAISS then finds that a file ends too early, and the file may be replaced.
        return _searching().faiss.read_index(str(path))
    except RuntimeError as error:
        raise TrainingError(
            f"Expected an index of FAISS in {path}. Received: {_reason(error)} Export or build it "
            "again."
        ) from error


def _expect_of(items: ItemVectors, index: Any, description: str) -> None:
    """Check that an index is one of the items, by inner product."""
    faiss = _searching().faiss
    if (index.ntotal, index.d) != items.vectors.shape:
        raise TrainingError(
            f"Expected an index of the {len(items.ids):,} items of width {items.width}. Received: "
            f"{description} with {index.ntotal:,} of width {index.d}. Build it of this catalogue."
        )
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise TrainingError(
            "Expected an index by inner product, as the scores are. Received: "
            f"{description}, which measures distances."
        )


def _expect_places(items: ItemVectors, index: Any, description: str) -> None:
    """Check that the ids of an index are places in the catalogue, as far as the nearest of some items show it."""
    chosen = np.unique(np.linspace(0, len(items.ids) - 1, _TRIED).astype(np.int64))
    places, _ = _searching().nearest(index, items.vectors[chosen], 1)
    wrong = places[places >= len(items.ids)]
    if len(wrong):
        raise TrainingError(
            f"Expected an index whose ids are the places of the items in their file, from 0 to {len(items.ids) - 1}. "
            f"Received: {description} with ids such as {wrong[0]}. Build it without ids of your own, by "
            "index.add(vectors), with the vectors in the order of the file."
        )


def _reason(error: Exception) -> str:
    """FAISS' own words, without the place in its source."""
    return in_a_line(RuntimeError(_PLACE.sub("", str(error))))
