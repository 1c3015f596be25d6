"""Lookups in tables of several workers, whose gradients are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.optimizers.distinct import distinct_places, summed_by_place
from training.parallel.collectives import Collectives
from training.parallel.lengths import (
    NUMBERS,
    common_length,
    dtype_of_rows,
    lengthened,
    row_counts,
    zero_after,
)
from training.sharding.layout import Layout, Route
from training.tables.side_by_side import Columns, LookedRows


@dataclass
class Recorded:
    """The lookups of a step whose gradients are exchanged.

    Attributes:
        tape: watches the vectors.
        ready: on the host, awaited by lookups in divided tables.
        apart: the host if lookups in whole tables are recorded, each by itself, else "".
        kind: dtype in which gradients travel between GPUs.
        lookups: in their order.
    """

    tape: tf.GradientTape
    ready: Sequence[tf.Tensor]
    apart: str
    kind: tf.DType
    lookups: list[Looked] = field(default_factory=list)


@dataclass(frozen=True)
class LookedOnGpu:
    """A lookup on GPUs, which do not wait for the host.

    Attributes:
        table: this worker's part of the table.
        vectors: one for each row that this worker has looked up, (n, width).
        held: for each row that any worker has looked up its number in this worker's part, or one
            beyond it, (workers * length,).
        length: to which the rows of each worker are padded.
        layout: of the table.
        collectives: all workers.
        kind: dtype in which the gradient travels.
    """

    table: keras.Variable
    vectors: tf.Tensor
    held: tf.Tensor
    length: tf.Tensor
    layout: Layout
    collectives: Collectives
    kind: tf.DType

    def gradient(self, upstream: tf.Tensor | tf.IndexedSlices) -> tf.IndexedSlices:
        """The gradient of this worker's part, from all workers.

        Args:
            upstream: gradient of `vectors`. Each worker's counts as one of the mean over workers.
        """
        collectives = self.collectives

        def work(part: tf.Tensor) -> tf.Tensor:
            return collectives.joined(part, self.kind) / collectives.size

        upstream = lengthened(tf.convert_to_tensor(upstream), self.length)
        values = collectives.compiled(work)(upstream)
        shape = tf.constant(tuple(self.table.shape), tf.int64)
        return tf.IndexedSlices(self.layout.own_columns(values), self.held, shape)


@dataclass(frozen=True)
class LookedOnCpu:
    """A lookup on CPUs, of distinct rows.

    Attributes:
        table: this worker's part of the table.
        vectors: those of the distinct rows that this worker has looked up, (rows, width).
        route: the way of these rows.
        wanted: rows of this worker's part that each worker has looked up, (workers, length).
        counts: the number of rows that each worker (first axis) has looked up in the part of each.
        travel: exchanges tensors.
    """

    table: keras.Variable
    vectors: tf.Tensor
    route: Route
    wanted: tf.Tensor
    counts: tf.Tensor
    travel: Travel

    def gradient(self, upstream: tf.Tensor | tf.IndexedSlices) -> tf.IndexedSlices:
        """The gradient of the table, as `LookedOnGpu.gradient` returns it."""
        if isinstance(upstream, tf.IndexedSlices):
            rows = tf.shape(self.vectors)[0]
            upstream = summed_by_place(upstream.values, upstream.indices, rows)
        collectives = self.travel.collectives
        parts = self.route.divided(upstream / collectives.size)
        length = tf.shape(self.wanted)[1]
        received = self.travel(parts, length, "gradients")
        # On the host, which knows the numbers.
        with tf.device(collectives.host):
            counts = tf.unstack(self.counts[:, collectives.rank], collectives.size)
        rows = [self.wanted[rank, :count] for rank, count in enumerate(counts)]
        values = [received[rank, :count] for rank, count in enumerate(counts)]
        shape = tf.constant(tuple(self.table.shape), tf.int64)
        return tf.IndexedSlices(tf.concat(values, 0), tf.concat(rows, 0), shape)


@dataclass(frozen=True)
class LookedInWhole:
    """A lookup in a table that every worker has.

    Attributes:
        table: the variable.
        vectors: (..., width).
        rows: of the table, one tensor for each of `columns`.
        columns: the columns of each; one for a list.
        host: where numbers of rows are.
    """

    table: keras.Variable
    vectors: tf.Tensor
    rows: Sequence[tf.Tensor]
    columns: Sequence[Columns]
    host: str

    def gradient(self, upstream: tf.Tensor | tf.IndexedSlices) -> list[LookedRows]:
        """This worker's gradient, for each of `columns`.

        Args:
            upstream: gradient of `vectors`.
        """
        values = tf.reshape(tf.convert_to_tensor(upstream), [-1, self.table.shape[1]])
        rows = [tf.cast(tf.reshape(each, [-1]), tf.int64) for each in self.rows]
        is_list = self.vectors.shape.rank == 2
        is_split = len(rows) > 1
        parts = (
            tf.split(values, row_counts(rows, self.host), num=len(rows)) if is_split else [values]
        )
        return [
            LookedRows(*each, is_list=is_list)
            for each in zip(rows, parts, self.columns, strict=True)
        ]


Looked = LookedOnGpu | LookedOnCpu | LookedInWhole
_RECORDED: ContextVar[Recorded | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded(
    tape: tf.GradientTape, ready: Sequence[tf.Tensor], apart: str, kind: tf.DType
) -> Iterator[list[Looked]]:
    """The lookups inside the block, whose vectors the tape watches.

    Args:
        tape: the step's.
        ready: tensors on the host, which the exchanges of the lookups await there.
        apart: the host, to record lookups in whole tables as well, each by itself; else "".
        kind: dtype in which gradients travel between GPUs.
    """
    record = Recorded(tape, ready, apart, kind)
    before = _RECORDED.set(record)
    try:
        yield record.lookups
    finally:
        _RECORDED.reset(before)


def _record(looked: Looked) -> None:
    record = _RECORDED.get()
    if record is not None:
        record.tape.watch(looked.vectors)
        record.lookups.append(looked)


def _apart(vectors: tf.Tensor) -> tf.Tensor:
    """Vectors of a divided table without the table's gradient, which only a step that records them sends on."""
    return tf.stop_gradient(vectors) if _RECORDED.get() else _untrained(vectors)


@tf.custom_gradient
def _untrained(vectors: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    def refused(_: tf.Tensor) -> tf.Tensor:
        raise TrainingError(
            "Expected the split step for tables that are divided among workers (shard=...), which sends their "
            "gradients on. Received: another one, such as that of model.compile. Use train(workers=workers), or "
            "compile_model(model, workers=workers)."
        )

    return tf.identity(vectors), refused


def whole_lookup(
    table: keras.Variable, rows: Sequence[tf.Tensor], columns: Sequence[Columns]
) -> tf.Tensor:
    """The vectors of rows of a table that every worker has: (*rows, width).

    Args:
        table: the variable.
        rows: integers, one tensor for each of `columns`, which are looked up as one.
        columns: the columns of each; one for a list.
    """
    vectors = tf.gather(table.value, tf.concat(rows, axis=0) if len(rows) > 1 else rows[0])
    record = _RECORDED.get()
    if record is None or not record.apart:
        return vectors
    vectors = tf.stop_gradient(vectors)
    _record(LookedInWhole(table, vectors, rows, columns, record.apart))
    return vectors


def gradients_of_tables(
    lookups: Sequence[Looked], upstream: Sequence[Any]
) -> dict[int, tf.IndexedSlices | list[LookedRows]]:
    """The gradients of this worker's parts of tables, by the id of the variable.

    Args:
        lookups: of a step.
        upstream: the gradient of the vectors of each, None if the loss does not depend on them.

    Returns:
        Those of divided tables are from all workers, those of others are still to be exchanged.
    """
    slices: dict[int, list[tf.IndexedSlices]] = {}
    whole: dict[int, list[LookedRows]] = {}
    for looked, gradient in zip(lookups, upstream, strict=True):
        if gradient is None:
            continue
        if isinstance(looked, LookedInWhole):
            whole.setdefault(id(looked.table), []).extend(looked.gradient(gradient))
        else:
            slices.setdefault(id(looked.table), []).append(looked.gradient(gradient))
    return whole | {
        table: tf.IndexedSlices(
            tf.concat([part.values for part in parts], axis=0),
            tf.concat([part.indices for part in parts], axis=0),
            parts[0].dense_shape,
        )
        for table, parts in slices.items()
    }


class Travel:
    """An all-to-all exchange of rows, which are padded to the longest of all workers."""

    _KINDS = ("rows", "vectors", "gradients")

    def __init__(self, collectives: Collectives) -> None:
        self.collectives = collectives
        self._count = collectives.reserve(1)
        self._numbers = {kind: collectives.reserve(NUMBERS) for kind in self._KINDS}

    def counts(self, rows: list[tf.Tensor]) -> tf.Tensor:
        """The number of rows that each worker sends to each worker, (workers, workers), on the host."""
        record = _RECORDED.get()
        ready = [] if record is None else record.ready
        host = self.collectives.host
        own_counts = row_counts(rows, host)
        with tf.device(host), tf.control_dependencies(ready):
            return self.collectives.gathered(own_counts[tf.newaxis], self._count, host)

    def __call__(self, parts: list[tf.Tensor], length: tf.Tensor, kind: str) -> tf.Tensor:
        """The parts that all workers have for this one, (workers, length, ...).

        Args:
            parts: one for each worker, (at most length, ...).
            length: as `common_length` gives it, the same on all workers.
            kind: "rows", "vectors" or "gradients".
        """
        with tf.device(self.collectives.host):
            _, place = common_length(length)
            number = self._numbers[kind] + place
        sent = tf.stack([lengthened(part, length) for part in parts])
        return self.collectives.exchanged(sent, number)


class ShardedLookup:
    """Lookups in a table that is divided among workers; all of them call it together.

    On CPUs a row that a worker needs several times travels once, and so does the sum of its
    gradients. A GPU would wait for the host with each number of distinct rows: there all workers
    receive the rows of all, and a vector is the sum of what each of them holds of it.
    """

    def __init__(self, collectives: Collectives, layout: Layout) -> None:
        self._collectives = collectives
        self._layout = layout
        self._travel = Travel(collectives)
        self._joined = collectives.compiled(collectives.joined)
        self._summed = collectives.compiled(collectives.summed)

    def __call__(self, table: keras.Variable, rows: tf.Tensor) -> tf.Tensor:
        """The vectors of rows.

        Args:
            table: this worker's part.
            rows: of the whole table, integers of any shape.

        Returns:
            (*rows, width).
        """
        if self._collectives.on_gpu:
            return self._on_gpu(table, rows)
        flat = tf.reshape(rows, [-1])
        distinct, places = distinct_places(flat, self._layout.whole[0], table.value.device)
        route = self._layout.route(distinct)
        counts = self._travel.counts(route.rows)
        with tf.device(self._collectives.host):
            length, _ = common_length(tf.reduce_max(counts))
        requests = self._travel(route.rows, length, "rows")
        replies = tf.gather(table.value, requests)
        answers = self._travel(tf.unstack(replies, self._collectives.size), length, "vectors")
        with tf.device(self._collectives.host):
            own_counts = tf.unstack(counts[self._collectives.rank], self._collectives.size)
        vectors = _apart(
            route.joined([answers[rank, :count] for rank, count in enumerate(own_counts)])
        )
        _record(LookedOnCpu(table, vectors, route, requests, counts, self._travel))
        return tf.gather(vectors, tf.reshape(places, tf.shape(rows)))

    def _on_gpu(self, table: keras.Variable, rows: tf.Tensor) -> tf.Tensor:
        collectives, layout = self._collectives, self._layout
        flat = tf.reshape(tf.cast(rows, tf.int64), [-1])
        height = layout.whole[0]
        record = _RECORDED.get()
        if record is not None and rows.shape.rank > 1:
            # Ids side by side: as many on all workers as the batch has rows, which were compared.
            length = tf.shape(flat)[0]
            flat += tf.cast(zero_after(record.ready[0], collectives.host), tf.int64)
            sent = flat
        else:
            counts = self._travel.counts([flat])
            with tf.device(collectives.host):
                length, _ = common_length(tf.reduce_max(counts))
            sent = lengthened(flat, length, height)
        every = self._joined(sent, dtype_of_rows(height))
        numbers = layout.held(every)
        # A GPU reads zeros for rows beyond the table.
        own_vectors = layout.in_columns(tf.gather(table.value, numbers))
        vectors = self._summed(own_vectors)
        by_worker = tf.reshape(vectors, [collectives.size, length, layout.whole[1]])
        vectors = _apart(by_worker[collectives.rank, : tf.shape(flat)[0]])
        if record is not None:
            _record(LookedOnGpu(table, vectors, numbers, length, layout, collectives, record.kind))
        return tf.reshape(vectors, tf.concat([tf.shape(rows), [layout.whole[1]]], axis=0))
