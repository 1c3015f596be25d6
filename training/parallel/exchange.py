"""What the workers exchange in a training step."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.parallel.agreement import agree, fingerprint
from training.parallel.workers import Workers

# Bytes of a piece: large ones use the network well; of several, the first travels while the
# optimizer's other work goes on.
_PIECE = 32 << 20
_UNEQUAL = "workers differ in this step"


class Exchange:
    """Makes the gradients of all workers those of one worker with all rows.

    Dense gradients travel in few pieces and are averaged. Gradients of tables travel as rows and
    their values, of which each worker then has those of all. What a step adds to the metrics'
    state is added up, so each worker has the metrics of all rows. Other state, such as moving
    averages, is averaged.

    Args:
        workers: the workers.
        model: the compiled model.
    """

    def __init__(self, workers: Workers, model: keras.Model) -> None:
        if workers.collectives is None:
            raise TypeError("an exchange takes several workers")
        self.workers = workers
        self._model = model
        self._collectives = workers.collectives
        self._started = False
        self._measures = False
        self._iterator: Any = lambda: None
        with tf.device(self._collectives.host):
            # For each worker the number of the epoch, and that of the batch's rows.
            zeros = tf.zeros([workers.size, 2], tf.int64)
            self._states = tf.Variable(zeros, trainable=False)
            self._epoch = tf.Variable(0, trainable=False, dtype=tf.int64)

    def begin(self, iterator: Any) -> None:
        """Before a step: compare and copy the model once, and count epochs.

        Raises:
            TrainingError: the model or the optimizer differs between workers.
        """
        if not self._started:
            self._started = True
            self._copy_model()
        if isinstance(iterator, tf.data.Iterator) and self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            self._epoch.assign_add(1)

    def _copy_model(self) -> None:
        model = self._model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        agree(self.workers, fingerprint(model))
        variables = [*model.variables, *model.optimizer.variables]
        self._collectives.copy_from_first([variable.value for variable in variables])

    def check(self, error: tf.errors.InvalidArgumentError) -> None:
        """Raise TrainingError if a step failed because workers differ."""
        if _UNEQUAL not in str(error):
            return
        (epoch, rows), *others = self._states.numpy().tolist()
        rank, (epoch_there, rows_there) = next(
            (rank, state) for rank, state in enumerate(others, 1) if state != [epoch, rows]
        )
        one, two = self.workers.name(0), self.workers.name(rank)
        if epoch != epoch_there:
            raise TrainingError(
                "Expected epochs of as many steps on all workers. Received: "
                f"{one} is in epoch {epoch}, {two} still or already in epoch {epoch_there}. Give "
                "loaders global_size and global_rank; other data needs equal shares."
            ) from error
        raise TrainingError(
            f"Expected batches of as many rows on all workers. Received: {rows} rows on {one}, "
            f"{rows_there} on {two}. Give all loaders the same batch_size and data."
        ) from error

    def counted(self, y: Any, outputs: Any, weight: Any) -> list[tf.Tensor]:
        """The state of the metrics, to be called before a step changes it.

        Args:
            y: labels, whose shapes decide which metrics Keras makes.
            outputs: predictions.
            weight: sample weights, or None.
        """
        if not self._measures:
            self._measures = True
            # Keras makes most of the state in its first use, which would be after this.
            with tf.init_scope():
                y, outputs, weight = keras.tree.map_structure(_one_row, (y, outputs, weight))
                self._model.compute_metrics(None, y, outputs, sample_weight=weight)
                self._model.reset_metrics()
        return [tf.identity(variable.value) for variable in self._model.metrics_variables]

    def __call__(
        self,
        gradients: Sequence[Any],
        variables: Sequence[keras.Variable],
        rows: tf.Tensor,
        counted: Sequence[tf.Tensor],
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Gradients of all workers, and metrics of all rows so far.

        Args:
            gradients: for each variable a tensor, rows of it, or None.
            variables: the model's.
            rows: number of rows of the batch, on the host.
            counted: state of the metrics before the step: see `counted`.
        """
        state = [v for v in self._model.non_trainable_variables if "float" in v.dtype]
        metrics = self._model.metrics_variables
        tables = [grad for grad in gradients if isinstance(grad, tf.IndexedSlices)]
        dense = [
            (grad, v)
            for grad, v in zip(gradients, variables, strict=True)
            if isinstance(grad, tf.Tensor)
        ]
        added = [(v.value - before, v) for v, before in zip(metrics, counted, strict=True)]
        local = [*dense, *((v.value, v) for v in state), *added]
        counts = self._counts(rows, tables)
        pieces = _pieces([v for _, v in local])
        with tf.control_dependencies([counts]):
            numbers = self._collectives.numbers(len(pieces) + 2 * len(tables))
        totals = self._totals([grad for grad, _ in local], pieces, numbers)
        means = [total / self.workers.size for total in totals[: len(dense) + len(state)]]
        for variable, mean in zip(state, means[len(dense) :], strict=True):
            variable.assign(mean)
        for variable, before, total in zip(metrics, counted, totals[len(means) :], strict=True):
            variable.assign(before + total)
        found = iter(means)
        slices = iter(
            self._gathered(table, counts[:, place], numbers[len(pieces) + 2 * place :])
            for place, table in enumerate(tables)
        )
        averaged = [
            grad if grad is None else next(slices if isinstance(grad, tf.IndexedSlices) else found)
            for grad in gradients
        ]
        return averaged, self._model.get_metrics_result()

    def _counts(self, rows: tf.Tensor, tables: Sequence[tf.IndexedSlices]) -> tf.Tensor:
        """For each worker the number of looked-up rows in each table: (workers, tables).

        All on the host, which knows shapes without waiting for a GPU. Fails if the workers' batches
        or epochs differ, so that the gradients of unlike steps are never mixed.
        """
        collectives = self._collectives
        # Not on the host's device, to which the rows themselves would be copied.
        found = [tf.shape(table.indices)[0] for table in tables]
        with tf.device(collectives.host):
            found = [tf.cast(count, tf.int64) for count in (rows, *found)]
            own = tf.stack([self._epoch.read_value(), *found])
            with tf.control_dependencies([own]):
                (number,) = collectives.numbers(1)
            counts = collectives.gathered(own[tf.newaxis], number, collectives.host)
            kept = self._states.assign(counts[:, :2])
            equal = tf.reduce_all(tf.equal(kept, kept[0]))
            with tf.control_dependencies([tf.debugging.Assert(equal, [_UNEQUAL])]):
                return tf.cast(counts[:, 2:], tf.int32)

    def _totals(
        self,
        tensors: Sequence[tf.Tensor],
        pieces: Sequence[Sequence[int]],
        numbers: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """The sums over the workers of all tensors."""
        totals: dict[int, tf.Tensor] = {}
        for places, number in zip(pieces, numbers, strict=False):
            parts = [tensors[place] for place in places]
            joined = tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
            total = self._collectives.total(joined, number)
            sizes = [part.shape.num_elements() for part in parts]
            for place, flat in zip(places, tf.split(total, sizes), strict=True):
                totals[place] = tf.reshape(flat, tensors[place].shape)
        return [totals[place] for place in range(len(tensors))]

    def _gathered(
        self, table: tf.IndexedSlices, counts: tf.Tensor, numbers: Sequence[tf.Tensor]
    ) -> tf.IndexedSlices:
        """The rows of all workers, with values divided by the number of workers."""
        collectives = self._collectives
        with tf.device(collectives.host):
            most = tf.reduce_max(counts)
            spans = [
                (most * rank, most * rank + count)
                for rank, count in enumerate(tf.unstack(counts, collectives.size))
            ]

        def together(tensor: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            every = collectives.gathered(_lengthened(tensor, most), number)
            return tf.concat([every[first:last] for first, last in spans], axis=0)

        # On a GPU integers of 32 bits are on the host.
        rows = together(tf.cast(table.indices, tf.int64), numbers[0])
        values = together(table.values / collectives.size, numbers[1])
        return tf.IndexedSlices(values, rows, table.dense_shape)


def _one_row(tensor: tf.Tensor | None) -> tf.Tensor | None:
    """Zeros like the rows of a tensor, outside of its graph."""
    if tensor is None:
        return None
    return tf.zeros([1, *(length or 1 for length in tensor.shape[1:])], tensor.dtype)


def _lengthened(tensor: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """A tensor (n, ...) with zeros behind it: (length, ...)."""
    missing = [length - tf.shape(tensor)[0], *tensor.shape[1:]]
    # TensorFlow pads integers on the host only.
    return tf.concat([tensor, tf.zeros(missing, tensor.dtype)], axis=0)


def _pieces(variables: Sequence[keras.Variable]) -> list[list[int]]:
    """The places of variables of one dtype that travel together."""
    pieces: list[list[int]] = []
    room: dict[str, int] = {}
    last: dict[str, list[int]] = {}
    for place, variable in enumerate(variables):
        dtype, size = variable.dtype, math.prod(variable.shape) * variable.value.dtype.size
        if size > room.get(dtype, 0):
            last[dtype], room[dtype] = [], _PIECE
            pieces.append(last[dtype])
        last[dtype].append(place)
        room[dtype] -= size
    return pieces
