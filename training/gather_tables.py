"""A model whose divided tables are whole, to save and export it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import keras
import numpy as np
import tensorflow as tf

from training.errors import TrainingError
from training.parallel.collectives import Collectives
from training.parallel.failures import together
from training.parallel.workers import alone, joined_workers
from training.private import replaced_value
from training.sharding.layout import Layout, Own, layout_of, set_layout
from training.sharding.room import free_memory


@contextmanager
def whole_tables(model: keras.Model, *, optimizer: bool = True) -> Iterator[None]:
    """Gather tables that are divided among workers (`shard=...`) on the first one, for the block.

    All workers enter the block. On the first one the model then is an ordinary one, to save, export
    or evaluate, and models that it makes or loads are whole; on the others nothing changes. A model
    without such tables is unchanged everywhere.

    The first worker's host needs memory for the whole tables once, beside its own part of them. The
    others send theirs in blocks of a few MB.

    Args:
        model: the model.
        optimizer: whether the optimizer's state of these tables is gathered too, which files of
            Keras (`model.save`, `save_weights`) contain, and an export does not.

    Raises:
        TrainingError: on all workers: the first one's host has no memory for the tables, or a
            worker is lost.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> with whole_tables(model):
        ...     weights = model.get_weights()
    """
    workers = joined_workers()
    variables = [*model.variables]
    if optimizer and getattr(model, "optimizer", None) is not None:  # none before it is compiled
        variables += model.optimizer.variables
    divided = [(v, layout) for v in variables if (layout := layout_of(v)) is not None]
    collectives = workers.collectives
    if not divided or collectives is None:
        yield
        return
    with ExitStack() as stack:
        with together(workers):
            _expect_room(collectives, divided)
            for variable, layout in divided:
                whole = _gathered(collectives, variable, layout)
                if whole is not None:
                    stack.enter_context(_replaced(variable, layout, whole))
        if workers.rank == 0:
            stack.enter_context(alone())
            # These know the divided tables.
            model.test_function = model.predict_function = None
            stack.callback(setattr, model, "test_function", None)
            stack.callback(setattr, model, "predict_function", None)
        yield


@contextmanager
def _replaced(variable: keras.Variable, layout: Layout, whole: tf.Variable) -> Iterator[None]:
    set_layout(variable, None)
    try:
        with replaced_value(variable, whole):
            yield
    finally:
        set_layout(variable, layout)


def _expect_room(collectives: Collectives, divided: list[tuple[keras.Variable, Layout]]) -> None:
    """Raise TrainingError on all workers if the first one's host has no memory for all tables."""
    needed = sum(int(np.prod(layout.whole)) * v.value.dtype.size for v, layout in divided)
    free = int(collectives.texts(str(free_memory()))[0])
    if needed > free:
        raise TrainingError(
            f"Expected memory for whole tables and their optimizer state, {needed / 1e9:,.3g} GB, on "
            f"the first worker's host, to save or export them. Received: {free / 1e9:,.3g} GB free. "
            "Give that host more memory; for an export, whole_tables(model, optimizer=False) "
            "gathers the tables alone. A server needs memory for them too."
        )


def _gathered(
    collectives: Collectives, variable: keras.Variable, layout: Layout
) -> tf.Variable | None:
    """The whole of a variable, on the first worker's host; None on the others."""
    whole = None
    if collectives.rank == 0:
        with tf.device(collectives.host):
            whole = tf.Variable(
                tf.raw_ops.Empty(shape=layout.whole, dtype=variable.value.dtype), trainable=False
            )
    numbers: dict[tuple[int, ...], int] = {}
    for first, count in layout.blocks():
        areas = [layout.own(rank, first, count) for rank in range(layout.size)]
        longest = max(area.count for area in areas if area is not None)
        shape = (longest, layout.shape[1])
        if shape not in numbers:
            numbers[shape] = collectives.reserve(1)
        with tf.device(collectives.host):
            area = areas[layout.rank]
            sent = tf.zeros(shape, variable.value.dtype)
            if area is not None:
                # Not by a slice of the variable, which is one of a copy once its rows were updated.
                rows = tf.gather(variable.value, tf.range(area.start, area.start + area.count))
                sent = tf.concat([rows, sent[area.count :]], axis=0)
            every = collectives.gathered(sent, numbers[shape], collectives.host)
            if whole is not None:
                _put(whole, first, count, areas, tf.split(every, layout.size))
    return whole


def _put(
    whole: tf.Variable,
    first: int,
    count: int,
    areas: Sequence[Own | None],
    parts: Sequence[tf.Tensor],
) -> None:
    """Write a block of rows, of which each worker has sent a part, into a table.

    Not by slices of the variable, whose assignment holds a second copy of it.
    """
    sent = [(area, part[: area.count]) for area, part in zip(areas, parts, strict=True) if area]
    if all(area.columns != slice(None) for area, _ in sent):
        values = tf.concat([part for _, part in sent], axis=1)
        whole.scatter_update(tf.IndexedSlices(values, tf.range(first, first + count)))
        return
    for area, part in sent:
        rows = tf.range(first + (area.rows.start or 0), first + count, area.rows.step or 1)
        whole.scatter_update(tf.IndexedSlices(part, rows))
