"""Values that workers exchange in a training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from loader.frameworks.checkpoint import learning_rate
from training.optimizers.distinct import distinct_rows
from training.parallel.agreement import agree, fingerprint
from training.parallel.equal_steps import EqualSteps
from training.parallel.lengths import NUMBERS, common_length, lengthened, zero_after
from training.parallel.workers import Workers
from training.private import layers_of
from training.sharding.layout import layout_of
from training.split.table_gradient import TableGradient, gradient_of_table
from training.tables.shared_table import TABLES

# A tensor with the variable that it is about.
_Local = tuple[tf.Tensor, keras.Variable]
# Mean gradients, sums of changes, and the gradients of tables.
_Exchanged = tuple[list[tf.Tensor], list[tf.Tensor], list[tf.IndexedSlices]]
# Large pieces use the network well; of several, the first travels while the optimizer's other work
# goes on.
BYTES_OF_A_PIECE = 32 << 20


class Exchange:
    """An exchange after which each worker has the gradients of one worker with all rows.

    Dense gradients travel together and are averaged. Gradients of tables travel as rows and
    their values, of which each worker then has those of all. On a CPU a worker sums those of a
    repeated row first; on a GPU only in small tables, since it knows no number of distinct rows
    without waiting. Those of divided tables are already where their rows are. What a step adds
    to the metrics' state is added up, so each worker has the metrics of all rows. Other state that
    steps change, such as moving averages, is averaged.

    Args:
        workers: the workers.
        model: the compiled model.
        kind: dtype in which gradients of rows of tables travel between GPUs, of which none is summed on
            the way.

    Attributes:
        workers: the workers.
        steps: compares the steps that they take.
        kind: see above.
    """

    def __init__(self, workers: Workers, model: keras.Model, kind: tf.DType = tf.float32) -> None:
        if workers.collectives is None:
            raise TypeError("an exchange takes several workers")
        self.workers = workers
        self.kind = kind
        self._model = model
        self._collectives = workers.collectives
        self.steps = EqualSteps(workers, lambda: learning_rate(model) or 0.0)
        self._is_ready, self._begins_fit = False, True
        self._numbers_of_pieces = self._numbers_of_tables = 0

    @property
    def apart(self) -> str:
        """The host, if lookups in whole tables are recorded each by itself: see `recorded`."""
        return self._collectives.host if self._collectives.on_gpu else ""

    @property
    def looks_up(self) -> bool:
        """Whether lookups take place on all workers: tables are divided among them now."""
        return any(layout_of(variable) is not None for variable in self._model.variables)

    def begin_fit(self) -> None:
        """Compare the workers again in the next step, and give them the first one's model."""
        self._begins_fit = True
        self.steps.begin_fit()

    def prepare(self, iterator: Any) -> None:
        """Give all workers the first one's model, before the first step of a `fit`.

        Args:
            iterator: of the batches, as Keras passes it; Python's if it is of `train_on_batch`, which
                Keras begins as it does a `fit`.

        Raises:
            TrainingError: the model or the optimizer differs between workers.
        """
        begins_fit = self._begins_fit and isinstance(iterator, tf.data.Iterator)
        if self._is_ready and not begins_fit:
            return
        self._begins_fit = False
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
        if self._is_ready:
            return
        reserve = self._collectives.reserve
        self._numbers_of_pieces = reserve(len(variables) + len(model.metrics_variables))
        self._numbers_of_tables = reserve(2 * NUMBERS * len(model.trainable_variables))
        self._is_ready = True

    def before(self) -> list[tf.Tensor]:
        """The state of metrics and layers, to be called before a step changes it."""
        return [tf.identity(variable.value) for variable in self._changing()]

    def begin(self, x: Any, y: Any, *, without_lists: bool = False) -> list[tf.Tensor]:
        """A comparison of the steps as soon as there is a batch, or nothing if it has to wait.

        Lookups that all workers do together await it. And on a GPU, without lists, the number of rows
        of the batch decides all others, so the comparison takes place while the host sends the rest of
        the step.

        Args:
            x: features of the batch.
            y: labels; None in prediction, where rows are not compared.
            without_lists: whether the model takes none.
        """
        rows = tf.zeros([1]) if y is None else by_row(x, y)
        decided = without_lists and self._collectives.on_gpu and _have_fixed_lengths(x)
        return [self.steps.compare(rows, [])] if self.looks_up or decided else []

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
        compared: Sequence[tf.Tensor],
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Gradients of all workers, and metrics of all rows so far.

        Args:
            gradients: for each variable a tensor, rows of it, those of each lookup, or None.
            variables: the model's.
            batch: a tensor of the batch with one entry for each row.
            before: state before the step: see `before`.
            compared: see `begin`.
        """
        changing = self._changing()
        table_flags = [
            isinstance(grad, (tf.IndexedSlices, list)) and layout_of(variable) is None
            for grad, variable in zip(gradients, variables, strict=True)
        ]
        tables = [
            (grad, variable)
            for grad, variable, is_table in zip(gradients, variables, table_flags, strict=True)
            if is_table
        ]
        dense = [
            (grad, v)
            for grad, v in zip(gradients, variables, strict=True)
            if isinstance(grad, tf.Tensor)
        ]
        changes = [(v.value - old, v) for v, old in zip(changing, before, strict=True)]
        on_gpu = self._collectives.on_gpu
        optimizer = self._model.optimizer
        sent = [
            gradient_of_table(*each, optimizer) if on_gpu else distinct_rows(*each)
            for each in tables
        ]
        rows = [each for gradient in sent for each in _rows_of_lists(gradient)]
        counts = None
        if self.looks_up:
            counts = self.steps.count(rows)
        elif not compared:
            compared = [self.steps.compare(batch, rows)]
            with tf.device(self._collectives.host):
                counts = compared[0][:, 1:]
        if on_gpu:
            result = self._on_gpu(dense, changes, sent, compared[0], counts)
        else:
            result = self._on_cpu(dense, changes, sent, counts)
        means, totals, every = result
        self._change(changing, before, totals)
        slices, dense_means = iter(every), iter(means)
        averaged = [
            next(slices) if is_table else next(dense_means) if isinstance(grad, tf.Tensor) else grad
            for grad, is_table in zip(gradients, table_flags, strict=True)
        ]
        return averaged, self._model.get_metrics_result()

    def _change(
        self,
        changing: Sequence[keras.Variable],
        before: Sequence[tf.Tensor],
        totals: Sequence[tf.Tensor],
    ) -> None:
        """Add the workers' changes to variables: the sum for a metric, the mean for a layer."""
        metrics = len(self._model.metrics_variables)
        for place, (variable, old, total) in enumerate(zip(changing, before, totals, strict=True)):
            # The mean of changes, since the mean of equal values may differ from them in the last bit.
            variable.assign(old + (total if place < metrics else total / self.workers.size))

    def _on_gpu(
        self,
        dense: Sequence[_Local],
        changes: Sequence[_Local],
        tables: Sequence[TableGradient],
        compared: tf.Tensor,
        counts: tf.Tensor | None,
    ) -> _Exchanged:
        """All in one function of XLA; rows beyond the table are padding.

        Args:
            dense: gradients.
            changes: of metrics and layers.
            tables: this worker's gradients.
            compared: on the host, after which the exchange may begin.
            counts: of rows of each worker in each list, on the host; None if all have as many.
        """
        collectives = self._collectives
        if counts is not None:
            with tf.device(collectives.host):
                longest = tf.unstack(
                    tf.reduce_max(counts, axis=0), sum(len(table.lists) for table in tables)
                )
                lengths = iter([common_length(length)[0] for length in longest])
            for table in tables:
                table.lengthen(lengths)
        begin = zero_after(compared, collectives.host)

        def work() -> tuple[Any, ...]:
            summed, size = collectives.summed, collectives.size
            means = [summed(tensor) / size for tensor, _ in dense]
            totals = [summed(tensor) for tensor, _ in changes]
            gradients = [table.exchanged(collectives, self.kind) for table in tables]
            # Awaited by all of them.
            return means, [*totals, summed(begin)], gradients

        means, totals, slices = collectives.compiled(work)()
        gradients = [
            tf.IndexedSlices(*pair, table.shape) for pair, table in zip(slices, tables, strict=True)
        ]
        return means, totals[:-1], gradients

    def _on_cpu(
        self,
        dense: Sequence[_Local],
        changes: Sequence[_Local],
        tables: Sequence[tf.IndexedSlices],
        counts: tf.Tensor,
    ) -> _Exchanged:
        """One operation after another; each has a number for each of its lengths."""
        local, first = [*dense, *changes], self._numbers_of_pieces
        variables = [variable for _, variable in local]
        places = _pieces(variables)
        pieces = [
            tf.concat([tf.reshape(local[place][0], [-1]) for place in piece], axis=0)
            for piece in places
        ]
        with tf.control_dependencies([counts]):
            sums = [self._collectives.total(piece, first + n) for n, piece in enumerate(pieces)]
        totals = _unjoined(sums, places, variables)
        means = [total / self.workers.size for total in totals[: len(dense)]]
        gathered = [self._gathered(table, counts[:, n], n) for n, table in enumerate(tables)]
        return means, totals[len(dense) :], gathered

    def _gathered(self, table: tf.IndexedSlices, counts: tf.Tensor, place: int) -> tf.IndexedSlices:
        """The rows of all workers, with values divided by the number of workers.

        Args:
            table: this worker's gradient.
            counts: number of rows of each worker, on the host.
            place: of the table among the gradients.
        """
        collectives = self._collectives
        length, kind = common_length(tf.reduce_max(counts))
        spans = [
            (length * rank, length * rank + count)
            for rank, count in enumerate(tf.unstack(counts, collectives.size))
        ]
        number = self._numbers_of_tables + 2 * NUMBERS * place + kind

        def together(tensor: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            every = collectives.gathered(lengthened(tensor, length), number)
            return tf.concat([every[first:last] for first, last in spans], axis=0)

        rows = together(tf.cast(table.indices, tf.int64), number)
        values = together(table.values / collectives.size, number + NUMBERS)
        return tf.IndexedSlices(values, rows, table.dense_shape)


def _rows_of_lists(gradient: TableGradient | tf.IndexedSlices) -> list[tf.Tensor]:
    """Indices of table rows; workers may have different numbers of them."""
    return gradient.lists if isinstance(gradient, TableGradient) else [gradient.indices]


def by_row(x: Any, y: Any) -> tf.Tensor:
    """A tensor of the batch with one entry for each row."""
    return next(t for t in keras.tree.flatten((y, x)) if t is not None)


def _whole_shape(variable: keras.Variable) -> Sequence[int]:
    layout = layout_of(variable)
    return tuple(variable.shape) if layout is None else layout.whole


def _moving(model: keras.Model) -> list[keras.Variable]:
    """The state of a model's layers that steps change, such as moving averages.

    Not tables that are not trained, nor layers that are frozen, which may be large.
    """
    fixed = {
        id(variable)
        for layer in layers_of(model)
        if not layer.trainable or isinstance(layer, TABLES)
        for variable in layer.variables
    }
    return [v for v in model.non_trainable_variables if "float" in v.dtype and id(v) not in fixed]


def _have_fixed_lengths(x: Any) -> bool:
    """Whether all features have the same shape in each batch, apart from the number of rows."""
    return all(None not in tensor.shape[1:] for tensor in keras.tree.flatten(x))


def _unjoined(
    pieces: Sequence[tf.Tensor],
    places: Sequence[Sequence[int]],
    variables: Sequence[keras.Variable],
) -> list[tf.Tensor]:
    """The tensors that were joined to pieces."""
    tensors: dict[int, tf.Tensor] = {}
    for piece, joined in zip(pieces, places, strict=True):
        shapes = [variables[place].shape for place in joined]
        flats = tf.split(piece, [math.prod(shape) for shape in shapes])
        for place, flat, shape in zip(joined, flats, shapes, strict=True):
            tensors[place] = tf.reshape(flat, shape)
    return [tensors[place] for place in range(len(variables))]


def _pieces(variables: Sequence[keras.Variable]) -> list[list[int]]:
    """The places of variables of one dtype that travel together."""
    pieces: list[list[int]] = []
    room: dict[str, int] = {}
    last: dict[str, list[int]] = {}
    for place, variable in enumerate(variables):
        dtype, size = variable.dtype, math.prod(variable.shape) * variable.value.dtype.size
        if size > room.get(dtype, 0):
            last[dtype], room[dtype] = [], BYTES_OF_A_PIECE
            pieces.append(last[dtype])
        last[dtype].append(place)
        room[dtype] -= size
    return pieces
