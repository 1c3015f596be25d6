"""Values that workers exchange in a training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.optimizers.distinct import distinct_rows
from training.parallel.agreement import agree, fingerprint
from training.parallel.equal_steps import EqualSteps
from training.parallel.lengths import NUMBERS, common_length, lengthened
from training.parallel.workers import Workers
from training.private import layers_of
from training.sharding.layout import layout_of
from training.tables.shared_table import SharedTable

# Bytes of a piece: large ones use the network well; of several, the first travels while the
# optimizer's other work goes on.
_PIECE = 32 << 20


class Exchange:
    """An exchange after which each worker has the gradients of one worker with all rows.

    Dense gradients travel in few pieces and are averaged. Gradients of tables travel as rows and
    their values, of which each worker then has those of all; on a CPU a worker sums those of a
    repeated row first. Those of divided tables are already where their rows are. What a step adds
    to the metrics' state is added up, so each worker has the metrics of all rows. Other state that
    steps change, such as moving averages, is averaged.

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

    @property
    def looks_up(self) -> bool:
        """Whether lookups take place on all workers: tables are divided among them now."""
        return any(layout_of(variable) is not None for variable in self._model.variables)

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
        agree(self.workers, fingerprint(model, _whole_shape))
        variables = [
            variable
            for variable in (*model.variables, *model.optimizer.variables)
            if layout_of(variable) is None
        ]
        self._collectives.copy_from_first([variable.value for variable in variables])
        reserve = self._collectives.reserve
        self._numbers_of_pieces = reserve(len(variables) + len(model.metrics_variables))
        self._numbers_of_tables = reserve(2 * NUMBERS * len(model.trainable_variables))
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

    def begin(self, x: Any, y: Any) -> list[Any]:
        """A comparison of the steps, to be awaited by lookups that all workers do together.

        Args:
            x: features of the batch.
            y: labels; None in prediction, where rows are not compared.
        """
        rows = tf.zeros([1]) if y is None else by_row(x, y)
        return [self.steps.compare(rows, [])] if self.looks_up else []

    def evaluated(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step of evaluation or prediction whose lookups all workers do together."""

        def call(data: Any) -> Any:
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            with tf.control_dependencies(self.begin(x, y)):
                return step(data)

        return call

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
        is_table = [
            isinstance(grad, tf.IndexedSlices) and layout_of(variable) is None
            for grad, variable in zip(gradients, variables, strict=True)
        ]
        tables = [
            _summed(grad, variable)
            for grad, variable, kept in zip(gradients, variables, is_table, strict=True)
            if kept
        ]
        dense = [
            (grad, v)
            for grad, v in zip(gradients, variables, strict=True)
            if isinstance(grad, tf.Tensor)
        ]
        changes = [(v.value - old, v) for v, old in zip(changing, before, strict=True)]
        compared = self.steps.count(tables) if self.looks_up else None
        counts = self.steps.compare(batch, tables) if compared is None else compared
        with tf.control_dependencies([counts]):
            totals = self._totals([*dense, *changes])
        means = iter([total / self.workers.size for total in totals[: len(dense)]])
        self._change(changing, before, totals[len(dense) :])
        slices = iter(
            self._gathered(table, counts[:, place], place) for place, table in enumerate(tables)
        )
        averaged = [
            next(slices) if kept else next(means) if isinstance(grad, tf.Tensor) else grad
            for grad, kept in zip(gradients, is_table, strict=True)
        ]
        return averaged, self._model.get_metrics_result()

    def _change(
        self,
        changing: Sequence[keras.Variable],
        before: Sequence[tf.Tensor],
        totals: Sequence[tf.Tensor],
    ) -> None:
        """Add to the state of metrics what all workers added, to that of layers the mean."""
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
            length, kind = common_length(tf.reduce_max(counts))
            spans = [
                (length * rank, length * rank + count)
                for rank, count in enumerate(tf.unstack(counts, collectives.size))
            ]
            number = self._numbers_of_tables + 2 * NUMBERS * place + kind

        def together(tensor: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            every = collectives.gathered(lengthened(tensor, length), number)
            return tf.concat([every[first:last] for first, last in spans], axis=0)

        # On a GPU integers of 32 bits are on the host.
        rows = together(tf.cast(table.indices, tf.int64), number)
        values = together(table.values / collectives.size, number + NUMBERS)
        return tf.IndexedSlices(values, rows, table.dense_shape)


def by_row(x: Any, y: Any) -> tf.Tensor:
    """A tensor of the batch with one entry for each row."""
    return next(t for t in keras.tree.flatten((y, x)) if t is not None)


def _whole_shape(variable: keras.Variable) -> Sequence[int]:
    layout = layout_of(variable)
    return tuple(variable.shape) if layout is None else layout.whole


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


def _one_row(tensor: tf.Tensor | None) -> tf.Tensor | None:
    """Zeros like the rows of a tensor, outside of its graph."""
    if tensor is None:
        return None
    return tf.zeros([1, *(length or 1 for length in tensor.shape[1:])], tensor.dtype)


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
