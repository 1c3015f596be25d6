"""A tower and a catalogue as a network, which answers with the best items."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from training.column_facts.recorded_fits import digests_of_weights
from training.errors import TrainingError
from training.item_index import ItemIndex, recall
from training.item_vectors import ItemVectors
from training.network.load import as_network, load_network
from training.network.network import Columns, Network
from training.signature import ModelSignature, TensorSpec
from workflow.schema.column import Array
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import make_fields_plain, whole_number
from workflow.schema.tags import other_fits

# Not an output, but what `as_served` needs.
_VECTOR = "vector of the query"
# Vectors that differ from a tower's by rounding: so many of each size, as shares of a tolerance. A small one
# changes few of a search's comparisons, a large one those that a small one does not reach.
_NEARBY, _SHARES = 12, (0.01, 0.1, 1.0)


@dataclass(frozen=True)
class NearestItems(metaclass=OwnNames):
    """A query's tower with the catalogue in which its vector is looked up, to be exported as one.

    The answer to each row is the k items whose vectors have the largest dot products with the
    tower's vector, the best first: "item" (N, k), as in the raw data, and "score" (N, k), float32.
    Without an index all items are compared, so the list is exact. An index of FAISS compares fewer,
    which takes a request for a million items from 23 ms to 3, and misses some of the best: the
    export's report has the share that it finds. Of items with equal scores the first in the file
    comes first; scores that differ by rounding alone may come in either order.

    Attributes:
        tower: a network of any kind with one output, float32 (N, width).
        items: a parquet file of `training.retrieval.write_item_vectors`, or another one with the
            columns `id`, whole numbers or strings, and `vector`, lists of floats of that width.
        k: how many items, up to the size of the catalogue. A client that needs fewer takes the first
            ones.
        index: None for an exact search, or a factory string of FAISS such as "HNSW32" or
            "IVF1024,Flat", from which an export builds the index, or the path of a file `.faiss` with
            an index of the items in the file's order, such as that of an export,
            `models/shop_items/1/items.faiss`. It needs the extra [faiss], here and in the server.
        search: parameters of the index in FAISS' syntax, "efSearch=64" or "nprobe=16": higher ones
            find more of the best items, in more time. They are kept in the index.

    Raises:
        TrainingError: k is no whole number from 1, or a search without an index. Errors of the files
            or the tower, and of a k that is too large, are raised by an export, as an `ExportError`.

    Example:
        >>> best = NearestItems(tower(model, "query"), "items.parquet", k=20)  # doctest: +SKIP
        >>> export_ensemble(best, workflow, "shop", "models", ["bought"])  # doctest: +SKIP
        >>> client.predict({"userId": [7]})["item"].shape  # doctest: +SKIP
        (1, 20)
    """

    tower: Any
    items: str | os.PathLike[str]
    k: int = 10
    index: str | os.PathLike[str] | None = None
    search: str | None = None

    def __post_init__(self) -> None:
        make_fields_plain(self)
        whole_number("k", self.k, 1, TrainingError)
        if self.index is not None and not (
            isinstance(self.index, str | os.PathLike) and self.index
        ):
            raise TrainingError(
                'Expected index as a factory string of FAISS such as "HNSW32", the path of a file '
                f".faiss, or None. Received: {self.index!r:.100}."
            )
        if self.search is not None and (self.index is None or not isinstance(self.search, str)):
            raise TrainingError(
                'Expected search as text such as "efSearch=64", beside an index. '
                f"Received: {self.search!r:.100} with index={self.index!r:.100}."
            )

    @property
    def further(self) -> tuple[str, ...]:
        """Keys of `predict_on_batch` besides the outputs."""
        return (_VECTOR,)

    @property
    def inputs(self) -> Any:
        """The tower's inputs."""
        return self._model.inputs

    @property
    def input(self) -> Any:
        """The tower's input structure."""
        return getattr(self._model, "input", None) or self._model.inputs[0]

    def predict_on_batch(self, tensors: Any) -> dict[str, Array]:
        """The outputs, and the tower's vectors for `as_served`."""
        answer = self._model.predict_on_batch(tensors)
        parts = list(answer.values()) if isinstance(answer, Mapping) else [answer]
        vectors = np.asarray(parts[0])
        return {**_outputs(self._finder, vectors, self.k), _VECTOR: vectors}

    def as_served(
        self, expected: Mapping[str, Array], served: Mapping[str, Array], tolerance: float
    ) -> dict[str, Array]:
        """The expected answers, with a served list in place of each that it equals but for rounding.

        Such a list has no item twice, and at each place an item whose score in this process is the
        expected one of that place, within the tolerance, relative to the score or to 1. With an index
        it has the items of a list that the index gives for a vector within the tolerance of the
        expected one, since rounding decides where a search turns: some such vectors are tried.
        """
        items, scores = expected["item"].copy(), expected["score"].copy()
        lists = _in_bytes(served["item"])
        if lists.shape != items.shape:  # which the comparison reports
            return {"item": items, "score": scores}
        rows = np.flatnonzero((lists != items).any(axis=1))
        once = np.array([len({*row}) == self.k for row in lists[rows].tolist()], bool)
        vectors = expected[_VECTOR][rows]
        for list_scores, best in self._possible(lists[rows], vectors, scores[rows], tolerance):
            with np.errstate(invalid="ignore"):
                near = np.abs(list_scores - best) <= tolerance * np.maximum(1, np.abs(best))
            equal = once & (near | (list_scores == best)).all(axis=1)
            items[rows[equal]], scores[rows[equal]] = lists[rows[equal]], best[equal]
        return {"item": items, "score": scores}

    def recall(self, expected: Mapping[str, Array], served: Mapping[str, Array]) -> float | None:
        """The share of the nearest items, by an exact search, in served lists; None without an index."""
        if self.index is None:
            return None
        return recall(self._catalogue, expected[_VECTOR], self._places_of(served["item"]))

    def _possible(
        self, lists: Array, vectors: Array, scores: Array, tolerance: float
    ) -> Iterator[tuple[Array, Array]]:
        """Scores of the items in lists, NaN for an item that is not among the found, and the best scores."""
        if not isinstance(self._finder, ItemIndex):
            places = self._places_of(lists)
            list_scores = np.einsum("nkw,nw->nk", self._catalogue.vectors[places], vectors)
            yield np.where(places < 0, np.nan, list_scores), scores
            return
        for near in nearby(vectors, tolerance):
            items, best = self._finder.nearest(near, self.k)
            row_scores = [
                dict(zip(*row, strict=True))
                for row in zip(_in_bytes(items).tolist(), best.tolist(), strict=True)
            ]
            list_scores = [
                [scores_of.get(item, np.nan) for item in row]
                for row, scores_of in zip(lists.tolist(), row_scores, strict=True)
            ]
            yield np.array(list_scores).reshape(lists.shape), best

    def _places_of(self, lists: Array) -> Array:
        """The places of items in the catalogue, -1 for unknown ones."""
        places = [self._places.get(item, -1) for item in _in_bytes(lists).ravel().tolist()]
        return np.array(places, np.int64).reshape(lists.shape)

    @cached_property
    def _places(self) -> dict[Any, int]:
        ids = _in_bytes(self._catalogue.ids)
        return {item: place for place, item in enumerate(ids.tolist())}

    def renamed(self, columns: Mapping[str, Any]) -> NearestNetwork:
        """The network to export, whose inputs have the names of the workflow's columns."""
        make_index = None if self.index is None else lambda: self._index
        return NearestNetwork(as_network(self.tower, columns), self._catalogue, self.k, make_index)

    @cached_property
    def _catalogue(self) -> ItemVectors:
        return ItemVectors.read(self.items)

    @property
    def _finder(self) -> ItemVectors | ItemIndex:
        return self._catalogue if self.index is None else self._index

    @cached_property
    def _index(self) -> ItemIndex:
        return ItemIndex.of(self._catalogue, self.index or "", self.search)

    @cached_property
    def _model(self) -> Any:
        return load_network(self.tower)


class NearestNetwork:
    """The tower of a `NearestItems` as a network, and its catalogue.

    Args:
        tower: the network that makes the vector.
        items: the catalogue.
        k: how many items to find.
        make_index: builds the index, which may take minutes, when it is needed; None for an exact
            search.

    Attributes:
        by_index: whether it searches an index.
        vector: the tower's output.

    Raises:
        TrainingError: the tower's output is no vector as wide as the items' vectors, k is not among 1
            to the number of items, or an id contains NUL.
    """

    def __init__(
        self,
        tower: Network,
        items: ItemVectors,
        k: int,
        make_index: Callable[[], ItemIndex] | None = None,
    ) -> None:
        self.tower, self.items, self.k = tower, items, k
        self.by_index, self._make_index = make_index is not None, make_index
        self.columns: Columns = tower.columns
        self.in_tensorflow = tower.in_tensorflow
        tower_outputs = tower.signature.outputs
        if len(tower_outputs) != 1 or tower_outputs[0].dtype != "float32":
            raise TrainingError(
                "Expected a tower with one output, the query's vector, of float32 and of the shape "
                f"(N, {items.width}). Received: {', '.join(map(str, tower_outputs))}. "
                'training.retrieval.tower(model, "query") is the tower of a model of two.'
            )
        self.vector = tower_outputs[0]
        if self.vector.name == "candidate_vector":
            raise TrainingError(
                "Expected the query's tower, whose vector is compared with the items' vectors. "
                "Received: the candidate's tower, which makes those. "
                'Take training.retrieval.tower(model, "query").'
            )
        items.expect(k, self.vector.shape[1] or 0)
        if items.ids.dtype == object and any("\0" in item for item in items.ids):
            raise TrainingError(
                "Expected ids of items without NUL, at which servers end a string. Received: one "
                "with a NUL. Remove it from the data."
            )
        dtype = "string" if items.ids.dtype == object else "int64"
        outputs = (TensorSpec("item", dtype, (None, k)), TensorSpec("score", "float32", (None, k)))
        if self.vector.name in [spec.name for spec in outputs]:
            raise TrainingError(
                "Expected a tower whose output has another name than the answers, `item` and `score`. "
                f"Received: {self.vector.name!r}. Rename the layer that makes it."
            )
        self.signature = ModelSignature(tower.signature.inputs, outputs)

    @cached_property
    def index(self) -> ItemIndex | None:
        """The index; None for an exact search."""
        return None if self._make_index is None else self._make_index()

    @property
    def is_half(self) -> bool:
        """Whether the tower computes in 16-bit floats."""
        return self.tower.is_half

    @property
    def weight_bytes(self) -> int:
        """The bytes of the tower's weights, and of the items' vectors where an index does not have them."""
        return self.tower.weight_bytes + (0 if self.by_index else int(self.items.vectors.nbytes))

    def answer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        return _outputs(self._finder, self.vectors(tensors), self.k)

    def tables(self) -> Iterable[tuple[str, str, int]]:
        """The tower's tables."""
        return self.tower.tables()

    def fits(self) -> dict[str, str]:
        """The digests of the tower, and of the items whose vectors were written."""
        return {**self.items.fits, **self.tower.fits()}

    def are_items_stale(self) -> bool:
        """Whether another fit, or other weights than the tower's, made the items' vectors, if known."""
        if other_fits(self.items.fits, self.tower.fits()):
            return True
        function: Any = getattr(self.tower, "function", None)  # of TensorFlow's networks
        digests = self.items.query_weights
        return bool(digests and function) and not digests_of_weights(function.variables) <= digests

    def vectors(self, tensors: Mapping[str, Array]) -> Array:
        """The tower's vectors, (N, width)."""
        return self.tower.answer(tensors)[self.vector.name]

    def with_ties(
        self, tensors: Mapping[str, Array], allowed: Mapping[str, Array], tolerance: float
    ) -> dict[str, Array]:
        """The allowed differences, infinite for an item whose place rounding may change.

        Args:
            tensors: the inputs.
            allowed: the allowed differences of the outputs.
            tolerance: the allowed difference of the tower's vector, relative to it or to 1.
        """
        vectors = self.vectors(tensors)
        # The list of an index depends on its length.
        next_too = self.k if self.by_index else min(self.k + 1, len(self.items.ids))
        _, scores = self._finder.nearest(vectors, next_too)
        steps = np.full((len(scores), self.k + 1), np.inf)
        with np.errstate(invalid="ignore"):
            steps[:, 1:next_too] = scores[:, :-1] - scores[:, 1:]
            # To the one before, and to the one after. A step of NaN is not wide either.
            apart = (steps[:, :-1] > 2 * allowed["score"]) & (steps[:, 1:] > 2 * allowed["score"])
        differences = {**allowed, "item": np.where(apart, allowed["item"], np.inf)}
        return self._with_turns(vectors, differences, tolerance) if self.by_index else differences

    @property
    def _finder(self) -> ItemVectors | ItemIndex:
        return self.index or self.items

    def _with_turns(
        self, vectors: Array, allowed: Mapping[str, Array], tolerance: float
    ) -> dict[str, Array]:
        """The allowed differences, larger in rows where the index finds other items for a nearby vector."""
        (items, best), *nearby_answers = [
            self._finder.nearest(near, self.k) for near in nearby(vectors, tolerance)
        ]
        item, score = allowed["item"].copy(), allowed["score"].copy()
        for nearby_items, scores in nearby_answers:
            turned = (np.sort(nearby_items, axis=1) != np.sort(items, axis=1)).any(axis=1)
            item[turned] = np.inf
            with np.errstate(invalid="ignore"):
                gaps = np.nan_to_num(np.abs(scores - best)[turned], nan=0.0, posinf=np.inf)
            score[turned] = np.maximum(score[turned], gaps + allowed["score"][turned])
        return {**allowed, "item": item, "score": score}


def nearby(vectors: Array, tolerance: float) -> Iterator[Array]:
    """The vectors, and some that differ from them by at most the tolerance, relative to 1 or more."""
    yield vectors
    random = np.random.default_rng(0)
    room = tolerance * np.maximum(1, np.abs(vectors))
    for share in (share for share in _SHARES for _ in range(_NEARBY)):
        moved = random.uniform(-share, share, vectors.shape) * room
        yield (vectors + moved).astype(np.float32)


def _outputs(finder: ItemVectors | ItemIndex, vectors: Array, k: int) -> dict[str, Array]:
    items, scores = finder.nearest(vectors, k)
    return {"item": _in_bytes(items), "score": scores}


def _in_bytes(ids: Array) -> Array:
    """Strings as bytes, as servers answer them."""
    if ids.dtype != object:
        return ids
    texts = np.empty(ids.size, object)
    texts[:] = [text.encode() if isinstance(text, str) else text for text in ids.flat]
    return texts.reshape(ids.shape)
