"""A catalogue of items with their vectors, in a parquet file, and the nearest of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from training.column_facts.recorded_fits import KEY as FITS
from training.column_facts.recorded_fits import read_text
from training.errors import TrainingError
from workflow import WorkflowError
from workflow.data.object_stores import expect_local
from workflow.data.sources import Source
from workflow.schema.column import Array
from workflow.schema.names import listed
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import takes_numpy_numbers

ID, VECTOR = "id", "vector"
# Of the file's metadata.
QUERY_WEIGHTS = "query_weights"
_REMEDY = "write_item_vectors writes such a file."
# Of scores, which are computed for some rows at a time.
BLOCK_BYTES = 64_000_000


@dataclass(frozen=True, repr=False)
class ItemVectors(metaclass=OwnNames):
    """Items and their vectors.

    Attributes:
        ids: the items as they are in the raw data, (n), int64 or strings as objects.
        vectors: float32 (n, width).
        fits: column -> digest of the fit whose features the vectors were computed from, if known.
        query_weights: digests of the weights of the query's tower when the vectors were written, if
            known.

    Example:
        >>> items = ItemVectors(np.array([7, 8]), np.eye(2, dtype="float32"))
        >>> items.nearest(np.array([[0.1, 0.9]], "float32"), 1)[0]
        array([[8]])
    """

    ids: Array
    vectors: Array
    fits: Mapping[str, str] = field(default_factory=dict)
    query_weights: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ItemVectors:
        """Read a parquet file with the columns `id`, whole numbers or strings, and `vector`.

        Args:
            path: the file, a folder of such files, or a glob.

        Raises:
            TrainingError: no such file, or one in an object store; no items; a column is missing or
                has another type; an id is null or occurs twice; vectors of different widths; a number
                that is null, NaN or infinite.
        """
        if not isinstance(path, str | os.PathLike):
            raise TrainingError(
                f"Expected the items as the path of a parquet file. Received: {type(path).__name__}. "
                f"{_REMEDY}"
            )
        expect_local(path, TrainingError)
        try:
            source = Source.of(path)
            missing = [name for name in (ID, VECTOR) if name not in source.names]
            if missing:
                raise TrainingError(
                    f"Expected the columns {ID} and {VECTOR} in {path}. Received: "
                    f"{listed(source.names)}. {_REMEDY}"
                )
            with source.errors("The items cannot be read"):
                table = source.select([ID, VECTOR]).sound().frame.collect()
        except WorkflowError as error:
            raise TrainingError(f"Expected the items as parquet. Received: {error}") from error
        if not table.height:
            raise TrainingError(f"Expected at least one item in {path}. Received: none. {_REMEDY}")
        return cls(_ids(table[ID], path), _vectors(table[VECTOR], path), *_made_by(path))

    def __repr__(self) -> str:
        return f"ItemVectors({len(self.ids):,} items, width {self.width})"

    @property
    def width(self) -> int:
        """The width of the vectors."""
        return int(self.vectors.shape[1])

    @takes_numpy_numbers
    def nearest(self, queries: Any, k: int) -> tuple[Array, Array]:
        """The items whose vectors have the largest dot products with each query.

        Args:
            queries: float32 (N, width), such as the answer of the query's tower.
            k: how many items.

        Returns:
            The items' ids and their scores, both (N, k), the best first; of items with equal scores
            the first in the file comes first.

        Raises:
            TrainingError: k above the number of items, or queries of another shape or width.
        """
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2:
            raise TrainingError(
                f"Expected queries of the shape (N, {self.width}). Received: {queries.shape}."
            )
        self.expect(k, queries.shape[-1])
        rows = max(1, BLOCK_BYTES // (4 * len(self.ids)))
        blocks = [queries[start : start + rows] for start in range(0, len(queries), rows)]
        # The vector of extreme features may hold NaN or infinity.
        with np.errstate(invalid="ignore", over="ignore"):
            answers = [_best(block @ self.vectors.T, k) for block in blocks]
        places = np.concatenate([place for place, _ in answers] or [np.zeros((0, k), np.int64)])
        scores = np.concatenate([score for _, score in answers] or [np.zeros((0, k), np.float32)])
        return self.ids[places], scores

    def expect(self, k: int, width: int) -> None:
        """Check a number of items to find, and the width of queries.

        Raises:
            TrainingError: they do not fit the items.
        """
        if type(k) is not int or not 1 <= k <= len(self.ids):
            raise TrainingError(
                f"Expected k from 1 to {len(self.ids):,}, the number of items. Received: {k!r}."
            )
        if width != self.width:
            raise TrainingError(
                f"Expected a query vector as wide as the items' vectors, {self.width}. "
                f"Received: {width}. Take both from the towers of one model."
            )


def _made_by(path: str | os.PathLike[str]) -> tuple[dict[str, str], frozenset[str]]:
    """The digests that `write_item_vectors` has written into the metadata of a single file."""
    if not Path(path).is_file():
        return {}, frozenset()
    metadata = pl.read_parquet_metadata(Path(path).absolute())
    text = metadata.get(FITS)
    fits = {} if text is None else read_text(text, f"the metadata of {path}")
    return fits, frozenset(metadata.get(QUERY_WEIGHTS, "").split())


def _ids(ids: pl.Series, path: Any) -> Array:
    is_text = ids.dtype in (pl.String, pl.Categorical, pl.Enum)
    if not is_text and not ids.dtype.is_integer():
        raise TrainingError(
            f"Expected the column {ID} in {path} as whole numbers or strings. Received: {ids.dtype}."
        )
    if ids.null_count() or ids.n_unique() < len(ids):
        twice = ids.filter(ids.is_duplicated()).unique(maintain_order=True)[:3].to_list()
        raise TrainingError(
            f"Expected each item once in {path}. Received: {len(ids):,} rows with "
            f"{ids.n_unique():,} items, {ids.null_count()} null; repeated: {twice}. Remove the rows."
        )
    if is_text:
        return np.array(ids.cast(pl.String).to_list(), object)
    if ids.dtype == pl.UInt64 and int(str(ids.max())) > np.iinfo(np.int64).max:
        raise TrainingError(
            f"Expected ids up to {np.iinfo(np.int64).max} in {path}. Received: {ids.max()!r}. "
            "Write them as strings."
        )
    return ids.cast(pl.Int64).to_numpy()


def _vectors(vectors: pl.Series, path: Any) -> Array:
    inner = vectors.dtype.inner if isinstance(vectors.dtype, pl.List | pl.Array) else None
    if inner not in (pl.Float32, pl.Float64):
        raise TrainingError(
            f"Expected the column {VECTOR} in {path} as lists of float32. "
            f"Received: {vectors.dtype}. {_REMEDY}"
        )
    if isinstance(vectors.dtype, pl.Array):
        vectors = vectors.arr.to_list()
    lengths = vectors.list.len().fill_null(0)
    width = int(str(lengths.max()))
    if lengths.n_unique() > 1 or not width:
        raise TrainingError(
            f"Expected vectors of one width in {path}. Received: widths from {lengths.min()!r} to "
            f"{width}, a null as 0."
        )
    with np.errstate(over="ignore"):
        flat = vectors.explode(empty_as_null=False).fill_null(float("nan")).to_numpy()
        table = np.ascontiguousarray(flat.astype(np.float32).reshape(-1, width))
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(wrong):
        raise TrainingError(
            f"Expected finite numbers in the vectors of {path}. Received: null, NaN or infinity in "
            f"{len(wrong):,} rows, the first of which is {wrong[0]}, counted from 0."
        )
    return table


def _best(scores: Array, k: int) -> tuple[Array, Array]:
    """Places and scores of the k largest in each row; of equal ones the first places."""
    places = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    least = np.take_along_axis(scores, places, 1).min(axis=1, keepdims=True)
    # Of scores that equal the k-th, argpartition chooses any.
    for row in np.flatnonzero((scores >= least).sum(axis=1) != k):
        places[row] = np.sort(np.argsort(-scores[row], kind="stable")[:k])
    order = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
    places = np.take_along_axis(places, order, 1)
    return places, np.take_along_axis(scores, places, 1)
