"""One table for all columns whose vectors have the same width."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.errors import TrainingError
from training.parallel.workers import Workers
from training.sharding.layout import ByColumn, ByRow, Layout, assign_own, layout_of, set_layout
from training.tables.bags import combine, is_for_few_rows, length_of, row_of_value
from training.tables.ids import (
    check_lengths,
    check_range,
    flat_integers,
    one_below_another,
    side_by_side,
    table_rows,
)
from training.tables.initial_table import initial_table
from training.tables.sharded_lookup import ShardedLookup, whole_lookup
from training.tables.side_by_side import Columns, looked_up
from workflow.schema.names import listed

Pair = tuple[tf.Tensor, tf.Tensor]


class SharedTable(keras.layers.Layer):
    """The tables of several columns, one below the other in one variable.

    One gather serves all columns of single values and one all lists, and their gradient is one set
    of rows of one variable, whatever the number of columns. Each column's rows are followed by one
    for unknown ids, which are out of the column's range. It starts at zero.

    The layer is part of other layers, which save its arguments.

    Args:
        columns: name -> cardinality.
        width: width of the vectors.
        initializer: a Keras initializer, called separately for each column.
        combiner: how the vectors of a list become one: "sum", "mean" or "sqrtn".
        shared: column -> the column of `columns` whose rows it looks up, of as many ids.
        skip_negative: whether negative ids of a list neither count nor are trained.
        workers: several workers among which the table is divided; else None.
        places: for each column with rows of its own the worker that holds them, None if all hold a
            part of them; by default all hold a part of each vector.
        **kwargs: arguments of `keras.layers.Layer`.

    Attributes:
        embeddings: the variable, (sum of cardinalities + number of columns, width), of the columns
            that have rows of their own, or this worker's part of it.
        validate_ids: whether ids and row lengths are checked in every call.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        width: int,
        initializer: keras.initializers.Initializer,
        combiner: str,
        shared: Mapping[str, str] | None = None,
        *,
        skip_negative: bool = False,
        workers: Workers | None = None,
        places: Mapping[str, int | None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cardinalities = dict(columns)
        self.width = width
        self.combiner = combiner
        self.skip_negative = skip_negative
        self.initializer = initializer
        self.validate_ids = False
        owners = dict(shared or {})
        self._own = {name: rows for name, rows in columns.items() if name not in owners}
        starts = itertools.accumulate((rows + 1 for rows in self._own.values()), initial=0)
        offsets = dict(zip(self._own, starts, strict=False))
        self.offsets = {name: offsets[owners.get(name, name)] for name in columns}
        self.rows = sum(self._own.values()) + len(self._own)
        self._layout = None if workers is None else self._divided(workers, places)
        self._sharded: ShardedLookup | None = None
        if workers is not None and workers.collectives is not None and self._layout is not None:
            self._sharded = ShardedLookup(workers.collectives, self._layout)

    def _divided(self, workers: Workers, places: Mapping[str, int | None] | None) -> Layout:
        heights = [rows + 1 for rows in self._own.values()]
        if places is None:
            return ByColumn(heights, self.width, workers.size, workers.rank)
        owners = [places[name] for name in self._own]
        return ByRow(heights, owners, self.width, workers.size, workers.rank)

    @property
    def is_divided(self) -> bool:
        """Whether this worker holds a part of the table now."""
        return self.built and layout_of(self.embeddings) is not None

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - the table needs no shape
        """Create the table.

        Raises:
            TrainingError: the device has no memory for it.
        """
        try:
            self.embeddings = self.add_weight(
                name="embeddings",
                shape=(self.rows, self.width) if self._layout is None else self._layout.shape,
                initializer=self._initial,
                # Otherwise mixed precision casts the whole table in every step.
                autocast=False,
            )
        except tf.errors.ResourceExhaustedError as error:
            raise TrainingError(
                f"Expected room for a table of {self.rows:,} rows of width {self.width}, "
                f"{self.rows * self.width * 4 / 1e9:.1f} GB, for {listed(self.cardinalities)}. "
                "Received: out of memory. Narrow the vectors (max_embedding_dim), bound the ids "
                "(ops.Categorify(max_size=...) or ops.HashBucket), or split the columns over "
                "several layers and build each under its own tf.device('/gpu:0'), '/gpu:1', ..., "
                "or '/cpu:0'. An optimizer with state needs as much again, Adam twice as much."
            ) from error
        set_layout(self.embeddings, self._layout)

    def load_own_variables(self, store: Any) -> None:
        """Set the table from a file; of a divided one this worker's part.

        Raises:
            ValueError: the file has a table of another shape.
        """
        if self._layout is None or not self.is_divided:
            super().load_own_variables(store)
            return
        if "0" not in store or tuple(store["0"].shape) != self._layout.whole:
            shape = tuple(store["0"].shape) if "0" in store else "none"
            raise ValueError(f"a table of shape {self._layout.whole} expected, {shape} found")
        assign_own(self.embeddings, self._layout, store["0"])

    def save_own_variables(self, store: Any) -> None:
        """Write the table to a file.

        Raises:
            TrainingError: this worker has a part of it only.
        """
        self._expect_whole("save it")
        super().save_own_variables(store)

    def _expect_built(self, column: str) -> None:
        if not self.built:
            raise TrainingError(
                f"Expected a layer that is built, to have a table of {column!r}. Received: one that "
                "is not. Call it with inputs, or build()."
            )

    def _expect_whole(self, purpose: str) -> None:
        if self.is_divided:
            raise TrainingError(
                f"Expected a whole table of {listed(self.cardinalities)}, to {purpose}. Received: "
                "a part, since it is divided among the workers. Do so in "
                "`with training.whole_tables(model):`, which all workers enter, on the first one."
            )

    def _initial(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        table = initial_table(self._own.values(), self.width, self.initializer, dtype, self._layout)
        return tf.ensure_shape(table, shape)

    def table(self, column: str) -> tf.Tensor:
        """A copy of the current vectors of a column's ids, (cardinality, width).

        Raises:
            TrainingError: the layer is not built yet.
        """
        self._expect_built(column)
        self._expect_whole("read it")
        start = self.offsets[column]
        return self.embeddings.value[start : start + self.cardinalities[column]]

    def assign(self, column: str, vectors: Any) -> None:
        """Set the vectors of a column's ids.

        Raises:
            TrainingError: the vectors do not have the shape (cardinality, width), or the layer is not
                built yet.
        """
        self._expect_built(column)
        expected = (self.cardinalities[column], self.width)
        if np.shape(vectors) != expected:
            raise TrainingError(
                f"Expected vectors of shape {expected} for {column!r}. Received: {np.shape(vectors)}."
            )
        start = self.offsets[column]
        if self._layout is not None and self.is_divided:
            assign_own(self.embeddings, self._layout, vectors, start, expected[0])
            return
        self.embeddings.value[start : start + expected[0]].assign(
            tf.cast(vectors, self.embeddings.dtype)
        )

    def _vectors(self, rows: Sequence[tf.Tensor], columns: Sequence[Columns]) -> tf.Tensor:
        """The vectors of rows of the whole table, of any shape: (*rows, width).

        Args:
            rows: one tensor for each of `columns`, which are looked up as one.
            columns: the columns of each; one for a list.
        """
        if self._sharded is None or not self.is_divided:
            return whole_lookup(self.embeddings, rows, columns)
        if is_for_few_rows():
            self._expect_whole("serve it")
        return self._sharded(self.embeddings, tf.concat(rows, axis=0))

    def single(self, columns: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The vectors of columns of ids, each (N, 1): (N, columns, width)."""
        is_for_few = is_for_few_rows()
        ids = side_by_side(columns) if is_for_few else one_below_another(columns)
        if self.rows > tf.int32.max:
            ids = tf.cast(ids, tf.int64)
        axis = 1 if is_for_few else 0
        if self.validate_ids:
            checked = [
                check_range(name, part, self.cardinalities[name])
                for name, part in zip(columns, tf.unstack(ids, len(columns), axis), strict=True)
            ]
            ids = tf.stack(checked, axis)
        rows = table_rows(
            ids,
            np.expand_dims([self.cardinalities[name] for name in columns], 1 - axis),
            np.expand_dims([self.offsets[name] for name in columns], 1 - axis),
        )
        spans = tuple((self.offsets[name], self.cardinalities[name] + 1) for name in columns)
        looked_up(self.embeddings, spans)
        # Transposed last: whole columns are computed faster than single ids.
        return self._vectors([rows if is_for_few else tf.transpose(rows)], [spans])

    def bags(self, columns: Mapping[str, Pair]) -> tf.Tensor:
        """The combined vectors of list columns (values, nnzs): (columns, N, width)."""
        looked_up(self.embeddings, None)
        rows, bags, counts, known = [], [], [], []
        for number, (name, (values, nnzs)) in enumerate(columns.items()):
            ids = flat_integers(name, "values", values)
            lengths = flat_integers(name, "nnzs", nnzs)
            if self.validate_ids:
                ids = check_range(name, ids, self.cardinalities[name])
                lengths = check_lengths(name, lengths, ids)
            # One bag more than rows, for values beyond the sum of the lengths; see row_of_value.
            first = number * (length_of(lengths) + 1)
            rows.append(table_rows(ids, self.cardinalities[name], self.offsets[name]))
            bags.append(row_of_value(lengths, ids) + first)
            # TensorFlow pads integers on the host only.
            counts.append(tf.concat([lengths, tf.zeros([1], lengths.dtype)], axis=0))
            known.append(ids >= 0)
        spans = [((self.offsets[name], self.cardinalities[name] + 1),) for name in columns]
        vectors = self._vectors(rows, spans)
        bag_of_each, count = tf.concat(bags, axis=0), tf.concat(counts, axis=0)
        if self.skip_negative:
            is_known = tf.concat(known, axis=0)[:, tf.newaxis]
            # Their row is that of all unknown ids, and would be trained.
            vectors = tf.where(is_known, vectors, tf.zeros((), vectors.dtype))
            ones = tf.cast(is_known, tf.float32)
            count = combine(ones, bag_of_each, count, "sum")[:, 0]
        combined = combine(vectors, bag_of_each, count, self.combiner)
        together = tf.reshape(combined, [len(columns), -1, self.width])
        # Not [:, :-1], whose gradient takes as long as the lookup.
        row_vectors = tf.slice(together, [0, 0, 0], [-1, tf.shape(together)[1] - 1, -1])
        return tf.ensure_shape(row_vectors, [len(columns), None, self.width])


# The layers whose tables a step reads and updates row by row.
TABLES = (SharedTable, keras.layers.Embedding)
