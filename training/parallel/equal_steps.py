"""A comparison of the steps that workers take, before they exchange anything."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from loader.tensorflow.sized_dataset import loader_read_by
from training.errors import TrainingError
from training.parallel.lengths import row_counts
from training.parallel.shares import expect_shares, order_shared
from training.parallel.workers import Workers

# Numbers that tell a worker's epoch.
_EPOCH = 4


class EqualSteps:
    """A comparison of all workers' epochs and rows of a batch, which fails if they differ.

    Args:
        workers: several workers.
        rate: returns the learning rate of this worker's optimizer; 0 if a schedule sets it.
    """

    def __init__(self, workers: Workers, rate: Callable[[], float]) -> None:
        if workers.collectives is None:
            raise TypeError("several workers are compared")
        self._workers = workers
        self._rate = rate
        self._collectives = workers.collectives
        self._number = self._later = self._tables = 0
        self._iterator: Any = lambda: None
        self._compares_loaders = False
        with tf.device(self._collectives.host):
            # For each worker its epoch, and the number of the batch's rows.
            zeros = tf.zeros([workers.size, 1 + _EPOCH], tf.int64)
            self._states = tf.Variable(zeros, trainable=False)
            # The number of the epoch; and of the loader's, if it shares an order, that and its seed; and
            # the bits of the learning rate, which callbacks change between epochs.
            self._epoch = tf.Variable([0] * _EPOCH, trainable=False, dtype=tf.int64)
            self._zero = tf.Variable(0, trainable=False)

    def begin_fit(self) -> None:
        """Let the next epoch be the first one of a `fit`, in which the loaders are compared."""
        self._compares_loaders = True

    def begin(self, iterator: Any, *, trains: bool) -> None:
        """Count epochs, each of which has an iterator of its own.

        Args:
            iterator: of the batches, as Keras passes it.
            trains: whether the step trains: others may have any data.

        Raises:
            TrainingError: the loaders differ with which all workers begin a `fit`.
        """
        self._number = self._number or self._collectives.reserve(1)
        if not isinstance(iterator, tf.data.Iterator) or self._iterator() is iterator:
            return
        self._iterator = weakref.ref(iterator)
        loader_epochs = loader_read_by(iterator) if trains else None
        if trains and self._compares_loaders:
            self._compares_loaders = False
            expect_shares(self._workers, loader_epochs)
        order = (0, 0) if loader_epochs is None else order_shared(loader_epochs[0])
        rate = int(np.float32(self._rate() if trains else 0.0).view(np.int32))
        self._epoch.assign([int(self._epoch[0]) + 1, *order, rate])

    def compare(self, batch: tf.Tensor, tables: Sequence[tf.Tensor]) -> tf.Tensor:
        """Each worker's rows of the batch, and rows that it has looked up in each table: (workers, 1 + tables).

        All on the host, which knows shapes without waiting for a GPU. Fails if the workers' batches
        or epochs differ, so that the gradients of unlike steps are never mixed.

        Args:
            batch: a tensor of the batch with one entry for each row.
            tables: the rows of gradients of tables.
        """
        with tf.device(self._collectives.host):
            zero = self._zero.read_value()
        # Where the batch is: to the host the rows themselves would be copied. The shape as an operation,
        # with a variable added: a length that TensorFlow knows it would tell the others even if the step
        # then finds no batch, or after a wait for the GPU, by a control edge from the batch.
        with tf.device(self._collectives.device):
            count = tf.raw_ops.Shape(input=batch)[:1] + zero
        parts = [count, row_counts(tables, self._collectives.host)] if tables else [count]
        self._tables = len(tables)
        with tf.device(self._collectives.host):
            own_counts = tf.cast(tf.concat(parts, axis=0), tf.int64)
            counts, states = self._exchanged(own_counts)
            equal = tf.reduce_all(tf.equal(states, states[0]))
            with tf.control_dependencies([tf.debugging.Assert(equal, ["workers differ"])]):
                return tf.cast(counts, tf.int32)

    def count(self, tables: Sequence[tf.Tensor]) -> tf.Tensor:
        """Rows of all workers in each table, (workers, tables), where the batches were compared before."""
        self._later = self._later or self._collectives.reserve(1)
        if not tables:
            return tf.zeros([self._workers.size, 0], tf.int32)
        host = self._collectives.host
        own_counts = row_counts(tables, host)
        with tf.device(host):
            return self._collectives.gathered(own_counts[tf.newaxis], self._later, host)

    def end(self) -> None:
        """Take part in a step for which this worker has no batch.

        Raises:
            TrainingError: other workers have one.
        """
        with tf.device(self._collectives.host):
            self._exchanged(tf.zeros([1 + self._tables], tf.int64))
        self.check()

    def check(self, cause: tf.errors.OpError | None = None) -> None:
        """Raise TrainingError if workers differed in the last step."""
        state, *other_states = self._states.numpy().tolist()
        different = [(rank, *o) for rank, o in enumerate(other_states, 1) if o != state]
        if not different:
            return
        epoch, *order, rate, rows = state
        rank, epoch_there, *order_there, rate_there, rows_there = different[0]
        here, there = self._workers.name(0), self._workers.name(rank)
        if 0 in (rows, rows_there):
            raise TrainingError(
                f"Expected a batch on all workers in each step. Received: in epoch {epoch} "
                f"{rows} rows on {here}, {rows_there} on {there}. Give loaders global_size and "
                "global_rank; divide other data so that each worker has as many batches as the "
                "others, and at least one."
            ) from cause
        if epoch != epoch_there:
            raise TrainingError(
                "Expected epochs of as many steps on all workers. Received: "
                f"{here} is in epoch {epoch}, {there} still or already in epoch {epoch_there}. Give "
                "loaders global_size and global_rank; other data needs equal shares."
            ) from cause
        if order != order_there:
            raise TrainingError(
                "Expected loaders that read the same epoch with the same seed. Received: epoch "
                f"{order[0]} with seed {order[1]} on {here}, epoch {order_there[0]} with seed "
                f"{order_there[1]} on {there}. Read the loader on all workers or on none: peek() shows a "
                "batch, and another loader is for evaluation. A seed_fn returns the same on all."
            ) from cause
        if rate != rate_there:
            rates = np.array([rate, rate_there], np.int32).view(np.float32)
            raise TrainingError(
                "Expected the same learning rate on all workers, without which their weights differ. "
                f"Received: in epoch {epoch} {rates[0]:g} on {here}, {rates[1]:g} on {there}. Give all workers the "
                "callback that changes it; one that decides by metrics of validation, such as "
                "ReduceLROnPlateau, needs train(), which gives all workers the same."
            ) from cause
        raise TrainingError(
            f"Expected batches of as many rows on all workers. Received: {rows} rows on {here}, "
            f"{rows_there} on {there}. Give all loaders the same batch_size and data."
        ) from cause

    def _exchanged(self, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts of all workers' rows, and their epochs and rows of the batch, which are kept."""
        counts = tf.concat([self._epoch.read_value(), counts], axis=0)
        every = self._collectives.gathered(counts[tf.newaxis], self._number, self._collectives.host)
        return every[:, _EPOCH:], self._states.assign(every[:, : 1 + _EPOCH])
