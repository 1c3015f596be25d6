"""PretrainedVectors: a vector of floats for each id, from another model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from workflow.data.vectors import Vectors, keep_matrix, read_vectors
from workflow.expressions.polars.series import to_column
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Partials, State
from workflow.operator.operator import NOT_SAVED, Example, Operator
from workflow.schema.column import Column
from workflow.schema.schema import Schema, Tags

from ._times import expect_no_times, series_of

_IDS, _VECTORS = "ids", "vectors"
# Values of a column that are looked up in fit, and the least number of which one must be known.
_SEEN, _FEWEST = 10_000, 20


@dataclass(frozen=True)
class PretrainedVectors(Operator):
    """Replace each id by its vector: a list of float32 of a fixed width, zeros for an unknown id.

    The network takes the vectors as numbers and does not train them; for a trained table see
    `training.pretrained_table`. The vectors are saved with the workflow, and with an exported
    preprocessing step in Python, which maps them into memory: a request reads its own rows. `fit`
    keeps them in a temporary file (`TMPDIR`), so that the table may change afterwards.

    Args:
        table: an array (N, width); the path of an .npy or a .safetensors file (also of float16 and
            bfloat16); or paths of parquet, a frame or a dict with a column of ids and one of lists of
            floats.
        ids: of arrays: the ids as values, the path of an .npy file, or the name of a tensor in the
            same file; by default the id of a vector is its row number. Of a table: the name of the
            column.
        vector: name of the tensor, or of the column of lists; by default the only one.
        storage_options: how to connect to the object stores of paths of parquet, as in `Workflow.fit`;
            not saved.

    Takes columns of integers or strings, without lists, each with the same vectors. Null is an
    unknown id.

    Raises:
        WorkflowError: a file is missing or damaged, vectors of different widths, with NaN or
            infinity, ids that are repeated, null or of another type than the column, or a column of
            lists, floats or times; `ids` for a column of Categorify's ids or the like; or none of the
            values that `fit` sees first, 20 or more, has a vector.

    Example:
        >>> table = {"item": [7, 9], "vector": [[1.0, 2.0], [3.0, 4.0]]}
        >>> from workflow import Workflow
        >>> workflow = Workflow(["item"] >> PretrainedVectors(table, ids="item")).fit({"item": [9]})
        >>> workflow.transform({"item": [9, 8, None]}).collect()["item"].to_list()
        [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    """

    table: Any = dataclasses.field(repr=False, compare=False, metadata=NOT_SAVED)
    ids: Any = dataclasses.field(default=None, repr=False, compare=False, metadata=NOT_SAVED)
    vector: str | None = dataclasses.field(default=None, compare=False, metadata=NOT_SAVED)
    storage_options: Mapping[str, Any] | None = dataclasses.field(
        default=None, repr=False, compare=False, metadata=NOT_SAVED
    )

    learns: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Vectors by integers, by strings and by row numbers; unknown ids and nulls."""
        matrix = np.array([[0.5, -1.0], [2.0, 3e38], [-0.0, 1e-30]], np.float32)
        rows: dict[str, Any] = {"item": [7, 9, None, 8, -(2**60)]}
        small = {"item": pl.Series([1, 0, 2, 3, None, 255], dtype=pl.UInt8)}
        named: dict[str, Any] = {"name": ["é", "b"], "vector": [[1.0], [2.0]]}
        return [
            Example(cls(matrix, ids=[9, 7, -(2**60)]), rows, {"item": [2**62]}),
            Example(cls(matrix), small, {"item": [2]}),
            Example(
                cls(named, ids="name"),
                {"city": ["b", "", "é", None]},
                {"city": ["B"]},
            ),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """Some values of each column, to see that they have vectors."""
        return {
            column.name: frame.select(value=column.name).unique().drop_nulls().head(_SEEN)
            for column in columns.columns
            if not column.is_list
        }

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """Some values of all parts."""
        return {name: parts.unique().head(_SEEN) for name, parts in partials.items()}

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """The vectors, one after another, and the ids."""
        expect_no_times(self, columns)
        vectors: Vectors = read_vectors(self.table, self.ids, self.vector, self.storage_options)
        for column in columns.columns:
            require(
                not column.is_list,
                f"PretrainedVectors needs single ids. Received: column {column.name!r}, {column}. "
                "For lists of ids set the table of an embedding layer: training.pretrained_table.",
            )
            require(
                vectors.ids is None or "cardinality" not in column.properties,
                f"PretrainedVectors with ids needs the values themselves. Received: column {column.name!r} "
                "after Categorify or the like, whose ids are numbers of its own. Put PretrainedVectors "
                'before it: ["item"] >> ops.PretrainedVectors(...).',
            )
            vectors.expect_ids(column.name, column.info.kind)
            _expect_known(column.name, partials[column.name]["value"], vectors)
        lengths = np.full(len(vectors.matrix), vectors.width, np.int64)
        state = {_VECTORS: Column(keep_matrix(vectors.matrix).reshape(-1), None, lengths)}
        return (
            state
            if vectors.ids is None
            else {**state, _IDS: to_column(vectors.ids, compact_strings=True)}
        )

    def lower(self, columns: Features, state: State) -> Features:
        """The vectors at the rows of the ids."""
        vectors, width = _expect_vectors(state)
        outputs: Features = {}
        for name, feature in columns.items():
            row = feature.expression
            if _IDS in state:
                row = row.lookup(state[_IDS])
            value = row.cast("int64").gather(vectors).list_pad(width, 0.0)
            count = {"value_count": {"min": width, "max": width}}
            tags = (Tags.CONTINUOUS, Tags.LIST)
            outputs[name] = Feature.of(name, value, feature.schema, tags=tags, properties=count)
        return outputs

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> PretrainedVectors:
        """The operator, with its vectors restored from the state, so that it can be fitted again."""
        vectors, width = _expect_vectors(state)
        ids = series_of(_IDS, state) if _IDS in state else None
        return cls(vectors.array.reshape(-1, width), ids, **config)


def _expect_known(name: str, column: pl.Series, vectors: Vectors) -> None:
    """Refuse values if none of them has a vector."""
    values = column if column.dtype == pl.String else column.cast(pl.Int128)
    if vectors.ids is None:
        matches = values.is_between(0, len(vectors.matrix) - 1)
    else:
        ids = vectors.ids if vectors.ids.dtype == pl.String else vectors.ids.cast(pl.Int128)
        matches = values.is_in(ids.implode())
    ids_text = "row numbers" if vectors.ids is None else f"such as {vectors.ids.head(3).to_list()}"
    require(
        len(column) < _FEWEST or bool(matches.any()),
        f"PretrainedVectors needs vectors of the values of column {name!r}, such as "
        f"{column.sort().head(3).to_list()}. Received: a vector of none of {len(column)} values; the ids of "
        f"the {len(vectors.matrix)} vectors are {ids_text}. Pass the ids of the same values as in the data.",
    )


def _expect_vectors(state: State) -> tuple[Column, int]:
    """The vectors of a state, and their width."""
    column = state.get(_VECTORS)
    lengths = None if column is None else column.lengths
    require(
        column is not None
        and lengths is not None
        and len(lengths) > 0
        and bool((lengths == lengths[0]).all())
        and column.valid is None
        and column.array.dtype == np.float32
        and state.keys() <= {_IDS, _VECTORS}
        and (_IDS not in state or state[_IDS].rows == len(lengths)),
        f"Expected the state of vectors of one width, float32, and of as many ids. "
        f"Received: {', '.join(state) or 'none'}.",
    )
    return column, int(lengths[0])  # type: ignore[return-value, index]
