"""Values that workers exchange in a training step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.layers.shared_table import SharedTable
from training.optimizers.distinct import distinct_rows
from training.parallel.agreement import agree, fingerprint
from training.parallel.equal_steps import EqualSteps
from training.parallel.workers import Workers
from training.private import layers_of

# Bytes of a piece: large ones use the network well; of several, the first travels while the
# optimizer's other work goes on.
_PIECE = 32 << 20
# Lengths between a power of two and the next, to which rows are padded: few, since each has a number
# for its operations, and so many that at most 3 % are padding.
_LENGTHS = 32
_NUMBERS = 32 * _LENGTHS


class Exchange:
    """Makes the gradients of all workers those of one worker with all rows.

    Dense gradients travel in few pieces and are averaged. Gradients of tables travel as rows and
    their values, of which each worker then has those of all; on a CPU a worker sums those of a
    repeated row first. What a step adds to the metrics'
    state is added up, so each worker has the metrics of all rows. Other state that steps change,
    such as moving averages, is averaged.

    Args:
        workers: the workers.
        model: the compiled model.

    Attributes:
        workers: the workers.
        steps: compares the steps that they take.
    """

    def __init__(self, workers: Workers, model: keras.Model) -> None:
        if workers.collectives is None:
            raise TypeError("an exchange takes several workers")
        self.workers = workers
        self._model = model
        self._collectives = workers.collectives
        self.steps = EqualSteps(workers)
        self._is_ready = self._measures = False
        self._numbers_of_pieces = self._numbers_of_tables = 0

    def prepare(self) -> None:
        """Before the first step: give all workers the first one's model.

        Raises:
            TrainingError: the model or the optimizer differs between workers.
        """
        if self._is_ready:
            return
        model = self._model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        agree(self.workers, fingerprint(model))
        variables = [*model.variables, *model.optimizer.variables]
        self._collectives.copy_from_first([variable.value for variable in variables])
        reserve = self._collectives.reserve
        self._numbers_of_pieces = reserve(len(variables) + len(model.metrics_variables))
        self._numbers_of_tables = reserve(2 * _NUMBERS * len(model.trainable_variables))
        self._is_ready = True

    def before(self, y: Any, weight: Any) -> list[tf.Tensor]:
        """The state of metrics and layers, to be called before a step changes it.

        Args:
            y: labels, whose shapes decide which metrics Keras makes.
            weight: sample weights, or None.
        """
        if not self._measures:
            self._measures = True
            # Keras makes most of the state in its first use, which would be after this.
            with tf.init_scope():
                y, outputs, weight = keras.tree.map_structure(
                    _one_row, (y, self._model.output, weight)
                )
                self._model.compute_metrics(None, y, outputs, sample_weight=weight)
                self._model.reset_metrics()
        return [tf.identity(variable.value) for variable in self._changing()]

    def _changing(self) -> list[keras.Variable]:
        """Variables besides weights that a step changes: of metrics, then of layers."""
        return [*self._model.metrics_variables, *_moving(self._model)]

    def __call__(
        self,
        gradients: Sequence[Any],
        variables: Sequence[keras.Variable],
        batch: tf.Tensor,
        before: Sequence[tf.Tensor],
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Gradients of all workers, and metrics of all rows so far.

        Args:
            gradients: for each variable a tensor, rows of it, or None.
            variables: the model's.
            batch: a tensor of the batch with one entry for each row.
            before: state before the step: see `before`.
        """
        changing = self._changing()
        tables = [
            _summed(grad, variable)
            for grad, variable in zip(gradients, variables, strict=True)
            if isinstance(grad, tf.IndexedSlices)
        ]
        dense = [
            (grad, v)
            for grad, v in zip(gradients, variables, strict=True)
            if isinstance(grad, tf.Tensor)
        ]
        changes = [(v.value - old, v) for v, old in zip(changing, before, strict=True)]
        counts = self.steps.compare(batch, tables)
        with tf.control_dependencies([counts]):
            totals = self._totals([*dense, *changes])
        means = iter([total / self.workers.size for total in totals[: len(dense)]])
        self._change(changing, before, totals[len(dense) :])
        slices = iter(
            self._gathered(table, counts[:, place], place) for place, table in enumerate(tables)
        )
        averaged = [
            grad if grad is None else next(slices if isinstance(grad, tf.IndexedSlices) else means)
            for grad in gradients
        ]
        return averaged, self._model.get_metrics_result()

    def _change(
        self,
        changing: Sequence[keras.Variable],
        before: Sequence[tf.Tensor],
        totals: Sequence[tf.Tensor],
    ) -> None:
        """Adds to the state of metrics what all workers added, to that of layers the mean."""
        metrics = len(self._model.metrics_variables)
        for place, (variable, old, total) in enumerate(zip(changing, before, totals, strict=True)):
            # The mean of changes: that of equal values might differ from them in the last bit.
            variable.assign(old + (total if place < metrics else total / self.workers.size))

    def _totals(self, local: Sequence[tuple[tf.Tensor, keras.Variable]]) -> list[tf.Tensor]:
        """The sums over the workers of all tensors, each with the variable that it is about."""
        totals: dict[int, tf.Tensor] = {}
        for number, places in enumerate(_pieces([variable for _, variable in local])):
            parts = [local[place][0] for place in places]
            joined = tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
            total = self._collectives.total(joined, self._numbers_of_pieces + number)
            shapes = [local[place][1].shape for place in places]
            flats = tf.split(total, [math.prod(shape) for shape in shapes])
            for place, flat, shape in zip(places, flats, shapes, strict=True):
                totals[place] = tf.reshape(flat, shape)
        return [totals[place] for place in range(len(local))]

    def _gathered(self, table: tf.IndexedSlices, counts: tf.Tensor, place: int) -> tf.IndexedSlices:
        """The rows of all workers, with values divided by the number of workers.

        Args:
            table: this worker's rows.
            counts: number of rows of each worker, on the host.
            place: of the table among the gradients.
        """
        collectives = self._collectives
        with tf.device(collectives.host):
            length, kind = _length(tf.reduce_max(counts))
            spans = [
                (length * rank, length * rank + count)
                for rank, count in enumerate(tf.unstack(counts, collectives.size))
            ]
            number = self._numbers_of_tables + 2 * _NUMBERS * place + kind

        def together(tensor: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            every = collectives.gathered(_lengthened(tensor, length), number)
            return tf.concat([every[first:last] for first, last in spans], axis=0)

        # On a GPU integers of 32 bits are on the host.
        rows = together(tf.cast(table.indices, tf.int64), number)
        values = together(table.values / collectives.size, number + _NUMBERS)
        return tf.IndexedSlices(values, rows, table.dense_shape)


def _summed(gradient: tf.IndexedSlices, table: keras.Variable) -> tf.IndexedSlices:
    """The gradient with each row once; on a GPU unchanged.

    The other workers must know the number of rows. On a GPU only the GPU knows how many are
    distinct, and the host would wait for it in each step.
    """
    return gradient if "GPU" in table.value.device else distinct_rows(gradient, table)


def _moving(model: keras.Model) -> list[keras.Variable]:
    """The state of a model's layers that steps change, such as moving averages.

    Not tables that are not trained, nor layers that are frozen, which may be large.
    """
    fixed = {
        id(variable)
        for layer in layers_of(model)
        if not layer.trainable or isinstance(layer, (SharedTable, keras.layers.Embedding))
        for variable in layer.variables
    }
    return [v for v in model.non_trainable_variables if "float" in v.dtype and id(v) not in fixed]


def _length(count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A length of at least `count`, and its number among all of them.

    Args:
        count: int32, a scalar.

    Example:
        >>> for count in (0, 5, 1024, 1025, 26 * 65_536):
        ...     print(*map(int, _length(tf.constant(count))))
        32 160
        32 160
        1024 320
        1056 321
        1703936 660
    """
    count = tf.maximum(count, _LENGTHS)
    # A rounding error of the logarithm selects the neighbouring power, and the same length.
    power = tf.cast(tf.math.log(tf.cast(count, tf.float64)) / math.log(2), tf.int32)
    least = tf.bitwise.left_shift(1, power)
    step = least // _LENGTHS
    steps = (count - least + step - 1) // step
    return least + steps * step, power * _LENGTHS + steps


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
