"""Pre-trained vectors as the table of an embedding layer, in the order of a vocabulary."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from training.errors import TrainingError
from training.tables.initial_table import initializer_of
from workflow import Workflow
from workflow.data.vectors import Vectors, read_vectors
from workflow.expressions.polars.series import column_schema


class PretrainedTable(NamedTuple):
    """The result of `pretrained_table`; printed, it is one line of what was found.

    Attributes:
        vectors: float32, (cardinality, width), for the ids of the column.
        column: name of the column.
        found: the number of values of the vocabulary that have a vector.
        missing: the number of values without one.
        unused: the number of vectors whose id is not in the vocabulary.
        initializer: name of the initializer of all other rows.
    """

    vectors: npt.NDArray[np.float32]
    column: str
    found: int
    missing: int
    unused: int
    initializer: str

    def __str__(self) -> str:
        rows, width = self.vectors.shape
        return (
            f"{self.column}: {self.found:,} of {self.found + self.missing:,} values have a vector of "
            f"width {width}; {rows - self.found:,} rows are initialised by {self.initializer}; "
            f"{self.unused:,} vectors are not used"
        )


def pretrained_table(
    workflow: Workflow,
    column: str,
    table: Any,
    ids: Any = None,
    vector: str | None = None,
    *,
    initializer: Any = "uniform",
) -> PretrainedTable:
    """Order pre-trained vectors as the ids of a fitted `Categorify`, for an embedding layer.

    Set the result in a layer that is built: `layer.set_embedding_table(column, table.vectors)` of
    an `EmbeddingCollection`, `layer.embeddings.set_embedding_table` of a `DenseFeatures`. It is
    trained further, unless `layer.trainable = False`; columns to be frozen need a layer of their
    own. A file of arrays is mapped into memory, and only the needed vectors are read.

    Args:
        workflow: a fitted workflow.
        column: an output of Categorify, even if it was renamed; not of a combination of columns.
        table: as `ops.PretrainedVectors` takes it; so are `ids` and `vector`.
        ids: the ids of the vectors.
        vector: name of the tensor or column of vectors.
        initializer: a Keras initializer of the rows without a vector: padding, null, values outside
            the vocabulary, and values whose vector is missing.

    Raises:
        TrainingError: no id has a vector; or, without `ids`, fewer than half of the values are row
            numbers of the vectors.
        WorkflowError: the column is not made by Categorify, or as `ops.PretrainedVectors`.

    Example:
        >>> from workflow import ops
        >>> workflow = Workflow(["item"] >> ops.Categorify()).fit({"item": ["b", "b", "a"]})
        >>> vectors = {"id": ["a", "c"], "vector": [[1.0, 2.0], [3.0, 4.0]]}
        >>> table = pretrained_table(workflow, "item", vectors, ids="id", initializer="zeros")
        >>> print(table)
        item: 1 of 2 values have a vector of width 2; 4 rows are initialised by Zeros; 1 vectors are not used
        >>> table.vectors[3:].tolist()
        [[0.0, 0.0], [1.0, 2.0]]
    """
    meanings = workflow.reverse_mapping(column)
    source = read_vectors(table, ids, vector)
    if isinstance(meanings["value"].dtype, pl.Struct):
        raise TrainingError(
            f"Expected a column of single values. Received: {column!r}, of combinations of "
            f"{', '.join(field.name for field in meanings['value'].dtype.fields)}."
        )
    source.expect_ids(column, column_schema(column, meanings["value"].dtype).info.kind)
    vocabulary = meanings.filter(pl.col("kind") == "value")
    places = _places(vocabulary["value"], source)
    has_vector = places >= 0
    if not has_vector.any():
        raise TrainingError(
            f"Expected vectors of values of {column!r}, such as {vocabulary['value'].head(3).to_list()}. "
            f"Received: none of {len(vocabulary)}; the vectors' ids are such as "
            f"{[*range(3)] if source.ids is None else source.ids.head(3).to_list()}."
        )
    if source.ids is None and 2 * has_vector.sum() < len(has_vector):
        raise TrainingError(
            f"Expected ids of the vectors. Received: none, so that an id is a row number up to "
            f"{len(source.matrix) - 1}, as {has_vector.sum()} of {len(has_vector)} values of {column!r} are, such as "
            f"{vocabulary['value'].head(3).to_list()}. Pass ids=, the value of each vector."
        )
    initial = initializer_of(initializer)
    rows = int(meanings["id"].max()) + 1  # type: ignore[arg-type]
    vectors = np.array(initial((rows, source.width), "float32"))
    vectors[vocabulary["id"].to_numpy()[has_vector]] = source.matrix[places[has_vector]]
    return PretrainedTable(
        vectors,
        column,
        int(has_vector.sum()),
        int((~has_vector).sum()),
        len(source.matrix) - int(has_vector.sum()),
        type(initial).__name__,
    )


def _places(values: pl.Series, source: Vectors) -> npt.NDArray[np.int64]:
    """The row of each value's vector, -1 for none."""
    rows = len(source.matrix)
    if source.ids is None:
        numbers = values.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
        return np.where((numbers >= 0) & (numbers < rows), numbers, -1)
    dtype = pl.String() if source.ids.dtype == pl.String else pl.Int128()
    left = pl.DataFrame({"id": values.cast(dtype)})
    right = pl.DataFrame({"id": source.ids.cast(dtype), "row": np.arange(rows)})
    joined = left.join(right, on="id", how="left", maintain_order="left")
    return joined["row"].fill_null(-1).to_numpy()
