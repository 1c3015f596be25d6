"""A tower and a catalogue as a network, which answers with the best items."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from training.errors import TrainingError
from training.item_vectors import ItemVectors
from training.network.load import as_network, load_network
from training.network.network import Columns, Network
from training.signature import ModelSignature, TensorSpec
from workflow.schema.column import Array
from workflow.schema.own_names import OwnNames

# Not an output, but what `as_served` needs.
_VECTOR = "vector of the query"


@dataclass(frozen=True)
class NearestItems(metaclass=OwnNames):
    """A query's tower with the catalogue in which its vector is looked up, to be exported as one.

    The answer to each row is the k items whose vectors have the largest dot products with the
    tower's vector, the best first: "item" (N, k), as in the raw data, and "score" (N, k), float32.
    All items are compared, so the list is exact. Of items with equal scores the first in the file
    comes first; scores that differ by rounding alone may come in either order.

    Attributes:
        tower: a network of any kind with one output, float32 (N, width).
        items: a parquet file of `training.retrieval.write_item_vectors`, or another one with the
            columns `id`, whole numbers or strings, and `vector`, lists of floats of that width.
        k: how many items, up to the size of the catalogue. A client that needs fewer takes the first
            ones.

    Raises:
        TrainingError: k is no whole number from 1. Errors of the file or the tower, and of a k that is
            too large, are raised by an export, as an `ExportError`.

    Example:
        >>> best = NearestItems(tower(model, "query"), "items.parquet", k=20)  # doctest: +SKIP
        >>> export_ensemble(best, workflow, "shop", "models", ["bought"])  # doctest: +SKIP
        >>> client.predict({"userId": [7]})["item"].shape  # doctest: +SKIP
        (1, 20)
    """

    tower: Any
    items: str | os.PathLike[str]
    k: int = 10

    def __post_init__(self) -> None:
        if type(self.k) is not int or self.k < 1:
            raise TrainingError(f"Expected k as a whole number from 1. Received: {self.k!r}.")

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
        return {**_outputs(self._catalogue, vectors, self.k), _VECTOR: vectors}

    def as_served(
        self, expected: Mapping[str, Array], served: Mapping[str, Array], tolerance: float
    ) -> dict[str, Array]:
        """The expected answers, with a served list in place of each that it equals but for ties.

        Such a list has no item twice, and at each place an item whose score in this process is the
        expected one of that place, within the tolerance, relative to the score or to 1.
        """
        places = {item: place for place, item in enumerate(_in_bytes(self._catalogue.ids).tolist())}
        items, scores = expected["item"].copy(), expected["score"]
        lists = _in_bytes(served["item"])
        if lists.shape != items.shape:  # which the comparison reports
            return {"item": items, "score": scores}
        for row in np.flatnonzero((lists != items).any(axis=1)).tolist():
            found = [places.get(item, -1) for item in lists[row].tolist()]
            if -1 in found or len(set(found)) < len(found):
                continue
            own = self._catalogue.vectors[found] @ expected[_VECTOR][row]
            if (np.abs(own - scores[row]) <= tolerance * np.maximum(1, np.abs(scores[row]))).all():
                items[row] = lists[row]
        return {"item": items, "score": scores}

    def renamed(self, columns: Mapping[str, Any]) -> NearestNetwork:
        """The network to export, whose inputs have the names of the workflow's columns."""
        return NearestNetwork(as_network(self.tower, columns), self._catalogue, self.k)

    @cached_property
    def _catalogue(self) -> ItemVectors:
        return ItemVectors.read(self.items)

    @cached_property
    def _model(self) -> Any:
        return load_network(self.tower)


class NearestNetwork:
    """The tower of a `NearestItems` as a network, and its catalogue.

    Args:
        tower: the network that makes the vector.
        items: the catalogue.
        k: how many items to find.

    Attributes:
        vector: the tower's output.

    Raises:
        TrainingError: the tower's output is no vector as wide as the items' vectors, k is not among 1
            to the number of items, or an id contains NUL.
    """

    def __init__(self, tower: Network, items: ItemVectors, k: int) -> None:
        self.tower, self.items, self.k = tower, items, k
        self.columns: Columns = tower.columns
        self.in_tensorflow = tower.in_tensorflow
        made = tower.signature.outputs
        if len(made) != 1 or made[0].dtype != "float32":
            raise TrainingError(
                "Expected a tower with one output, the query's vector, of float32 and of the shape "
                f"(N, {items.width}). Received: {', '.join(map(str, made))}. "
                'training.retrieval.tower(model, "query") is the tower of a model of two.'
            )
        self.vector = made[0]
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
        self.signature = ModelSignature(tower.signature.inputs, outputs)

    @property
    def is_half(self) -> bool:
        """Whether the tower computes in 16-bit floats."""
        return self.tower.is_half

    @property
    def weight_bytes(self) -> int:
        """The bytes of the tower's weights and of the items' vectors."""
        return self.tower.weight_bytes + int(self.items.vectors.nbytes)

    def answer(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name."""
        return _outputs(self.items, self._vectors(tensors), self.k)

    def tables(self) -> Iterable[tuple[str, str, int]]:
        """The tower's tables."""
        return self.tower.tables()

    def with_ties(
        self, tensors: Mapping[str, Array], allowed: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The allowed differences, infinite for an item whose score rounding may exchange.

        Args:
            tensors: the inputs.
            allowed: the allowed differences of the outputs.
        """
        next_too = min(self.k + 1, len(self.items.ids))
        _, scores = self.items.nearest(self._vectors(tensors), next_too)
        steps = np.full((len(scores), self.k + 1), np.inf)
        with np.errstate(invalid="ignore"):
            steps[:, 1:next_too] = scores[:, :-1] - scores[:, 1:]
            # To the one before, and to the one after. A step of NaN is not wide either.
            apart = (steps[:, :-1] > 2 * allowed["score"]) & (steps[:, 1:] > 2 * allowed["score"])
        return {**allowed, "item": np.where(apart, allowed["item"], np.inf)}

    def _vectors(self, tensors: Mapping[str, Array]) -> Array:
        return self.tower.answer(tensors)[self.vector.name]


def _outputs(items: ItemVectors, vectors: Array, k: int) -> dict[str, Array]:
    found, scores = items.nearest(vectors, k)
    return {"item": _in_bytes(found), "score": scores}


def _in_bytes(ids: Array) -> Array:
    """Strings as bytes, as servers answer them."""
    if ids.dtype != object:
        return ids
    made = np.empty(ids.size, object)
    made[:] = [each.encode() if isinstance(each, str) else each for each in ids.flat]
    return made.reshape(ids.shape)
