"""The split training step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from training.errors import TrainingError
from training.gpu import has_gpu
from training.private import layers_of, loss_means, mask_of, set_mask
from training.sharding.layout import layout_of
from training.split import replicas
from training.split.both_parts import expect_lookups_alone, sum_of_both
from training.split.choice import either
from training.split.cut import SplitModel, cut, is_compilable
from training.split.exchange import Exchange, by_row
from training.split.faster_dense import concatenated
from training.split.precision import faster
from training.split.refusals import (
    expect_keras_own_step,
    expect_known,
    expect_no_assignments,
    expect_no_losses,
    expect_not_assigned,
    expect_state,
    expect_sums,
)
from training.split.table_gradient import gradient_of_table, takes_rows
from training.tables.sharded_lookup import gradients_of_tables, recorded
from training.tables.side_by_side import side_by_side_of
from workflow.schema.names import listed

# Shapes are known on the host, where branches that depend on them are chosen.
_HOST = "/cpu:0"
# Columns of a part that is joined with its neighbours.
_NARROW = 16


class _Result(NamedTuple):
    """Result of the tower's part of a step, which assigns nothing.

    Keras' masks are apart from the outputs, since tensors lose them when they leave a function.
    """

    outputs: Any
    masks: list[tf.Tensor | None]
    lookup_gradients: list[Any]
    gradients: list[tf.Tensor | None]
    updates: Mapping[str, tf.Tensor]


class SplitStep:
    """A `train_step` of a Keras model in two parts.

    XLA compiles one function: the dense layers, forward and backward, and before them the lookups of
    single ids. The function returns the predictions, the gradients (those of tables as rows), and the
    new values of other state, such as the mean loss. It assigns nothing, since on a GPU XLA is slow at
    scattering to repeated ids and at compiling assignments; the optimizer updates the tables afterwards,
    with TensorFlow's own kernels. The shapes of lists differ from batch to batch, and XLA would compile
    again for each: if a model takes lists, TensorFlow's own kernels do its lookups as well, and the
    function takes the looked-up vectors and returns their gradients.

    XLA compiles for each batch size separately. Only the largest batch size so far is compiled; a
    smaller batch, such as the last one of an epoch, is computed without XLA.

    Args:
        model: a compiled functional or sequential model.
        policy: the dtype policy of the dense layers in training; None for their own.
        xla: whether to compile the dense part.
        exchange: exchanges gradients with the other workers; None for one worker.

    Raises:
        TrainingError: the model cannot be split.
    """

    def __init__(
        self, model: keras.Model, policy: str | None, xla: bool, exchange: Exchange | None = None
    ) -> None:
        self.model = model
        self._exchange = exchange
        self.parts = cut_for_training(model)
        self._policy = policy
        self._xla = xla
        self._prepare()
        self._on_gpu = has_gpu()
        self._has_metrics = exchange is None  # then Keras makes them while a step is traced
        with tf.device(_HOST):
            self._largest = tf.Variable(0, trainable=False, dtype=tf.int64)

    def __call__(self, data: Any) -> Mapping[str, Any]:
        """Train on one batch; return the metrics so far.

        Raises:
            TrainingError: a layer is trainable that was frozen when the optimizer was built.
        """
        if self._trained != _trained(self.model):
            self._prepare()
        self._build_optimizer()
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        self._make_metrics(y, weight)
        before = [] if self._exchange is None else self._exchange.before()
        tables = self.parts.lookup.trainable_variables
        # Decided here, since checks of ids are switched on and off after compiling.
        joined = is_compilable(self.parts)
        sums_rows = self._exchange is None and self._on_gpu and takes_rows(self.model.optimizer)
        ready, apart, kind = [], _HOST if sums_rows else "", tf.float32
        if self._exchange is not None:
            ready = self._exchange.begin(x, y, without_lists=joined)
            apart, kind = self._exchange.apart, self._exchange.kind
        if self._on_gpu:
            y, weight = _widened((y, weight))
            x = x if joined and self._xla else _widened(x)
        if joined:
            result = self._run(taken(self.parts.lookup, x), y, weight, [], joined=True)
            gradients = _by_variable(tables, result.lookup_gradients)
        else:
            whole = [table for table in tables if layout_of(table) is None]
            with (
                tf.GradientTape(watch_accessed_variables=False) as tape,
                recorded(tape, ready, apart, kind) as lookups,
            ):
                tape.watch([table.value for table in whole])
                # Not joined yet: the tower does that, with its own computation.
                border = self._look_up(taken(self.parts.lookup, x))
                parts = [_in_few(concatenated(tensor)) for tensor in border]
            result = self._run(parts, y, weight, list(map(mask_of, border)), joined=False)
            sources = [table.value for table in whole], [lookup.vectors for lookup in lookups]
            looked_up = keras.tree.flatten(parts)
            backward, arrived = _backward(tape, looked_up, result.lookup_gradients, sources)
            gradients = _by_variable(whole, backward)
            of_lookups = gradients_of_tables(lookups, arrived)
            expect_lookups_alone(whole, gradients, of_lookups)
            gradients |= of_lookups
        tower = self.parts.tower.trainable_variables
        for variable, gradient in zip(tower, result.gradients, strict=True):
            # A layer may be in both parts, or read a table by itself.
            gradients[id(variable)] = sum_of_both(variable, gradients.get(id(variable)), gradient)
        variables = self.model.trainable_variables
        # A step that finds no batch fails, and until then it must neither count nor draw random
        # numbers. `identity`, since TensorFlow does not wait for the results of an inlined function.
        predicted = tf.identity(keras.tree.flatten(result.outputs)[0])
        with tf.control_dependencies([predicted]):
            self._assign(result.updates)
        outputs = _masked(keras.tree.flatten(result.outputs), result.masks)
        outputs = keras.tree.pack_sequence_as(result.outputs, outputs)
        logs = self.model.compute_metrics(x, y, outputs, sample_weight=weight)
        ordered = [gradients.get(id(variable)) for variable in variables]
        if sums_rows:
            ordered = [self._summed(*pair) for pair in zip(ordered, variables, strict=True)]
        if self._exchange is not None:
            ordered, logs = self._exchange(ordered, variables, by_row(x, y), before, ready)
        with tf.control_dependencies([predicted]):
            self.model.optimizer.apply(ordered, variables)
        return logs

    def _prepare(self) -> None:
        """Make the layers for the current frozen state, and the functions that call them."""
        self._trained = _trained(self.model)
        self._target = faster(self.parts.tower, self._policy, self._xla)
        _take_masks(self._target)
        # Not inlined: inside a branch TensorFlow puts all operations on the GPU, and some belong on
        # the host.
        self.plain = tf.function(
            self._compute, autograph=False, experimental_attributes={"_noinline": self._xla}
        )
        self.compiled = tf.function(self._compute, autograph=False, jit_compile=True)

    def _build_optimizer(self) -> None:
        """Build the optimizer before the loss is scaled; otherwise the trace keeps the initial scale."""
        expect_state(self.model.optimizer, self.model.trainable_variables)
        if not self.model.optimizer.built:
            with tf.init_scope():
                self.model.optimizer.build(self.model.trainable_variables)

    def _make_metrics(self, y: Any, weight: Any) -> None:
        """Make Keras create its metrics now, since workers read them before their first use.

        Args:
            y: labels, whose shapes decide which metrics Keras makes.
            weight: sample weights, or None.
        """
        if self._has_metrics:
            return
        self._has_metrics = True
        with tf.init_scope():
            state = [(variable, variable.numpy()) for variable in self.model.metrics_variables]
            tensors = (y, self.parts.tower.output, weight)
            y, outputs, weight = keras.tree.map_structure(_one_row, tensors)
            # Of the class: `train` gives the model a function that counts these rows for the report.
            compute = partial(type(self.model).compute_metrics, self.model, None)
            if len(self.model.outputs) > 1:  # Keras counts the loss of each
                self.model.compute_loss(y=y, y_pred=outputs, sample_weight=weight)
            compute(y, outputs, weight)
            self.model.reset_metrics()
            ones = keras.tree.map_structure(_ones_like, (y, weight))
            # Unlike the labels: the largest error is no sum either, and would stay 0.
            halves = keras.tree.map_structure(
                lambda part: part + 0.5 if part.dtype.is_floating else part, outputs
            )
            expect_sums(self.model, lambda: compute(ones[0], halves, ones[1]))
            self.model.reset_metrics()
            for variable, value in state:  # of an epoch that is resumed
                variable.assign(value)

    def _summed(self, gradient: Any, variable: keras.Variable) -> Any:
        """A gradient on a GPU; a table's repeated rows are summed first where that makes it cheaper to apply."""
        optimizer = self.model.optimizer
        on_gpu = "GPU" in variable.value.device  # a large table may be on the host
        if isinstance(gradient, list):
            if on_gpu:
                return gradient_of_table(gradient, variable, optimizer).alone()
            values = tf.concat([looked.values for looked in gradient], axis=0)
            rows = tf.concat([looked.rows for looked in gradient], axis=0)
            return tf.IndexedSlices(values, rows, tf.constant(tuple(variable.shape), tf.int64))
        # A sum of rows that are read once takes as long as adding them to the table.
        columns = isinstance(gradient, tf.IndexedSlices) and side_by_side_of(variable)
        if columns and on_gpu and not getattr(optimizer, "linear", False):
            return gradient_of_table(gradient, variable, optimizer).alone()
        return gradient

    def _look_up(self, x: Any) -> list[tf.Tensor]:
        """Inputs of the tower."""
        border = keras.tree.flatten(self.parts.lookup(x, training=True))
        expect_no_losses(self.parts.lookup.losses)
        return border

    def _run(self, inputs: Any, y: Any, weight: Any, masks: list[Any], *, joined: bool) -> _Result:
        if not self._xla:
            return self.plain(inputs, y, weight, masks, joined)
        size = rows_of(inputs, y)
        with tf.device(_HOST):
            size = tf.cast(size, tf.int64)
            largest = self._largest.assign(tf.maximum(self._largest, size))
            is_full = tf.equal(size, largest)
        return either(is_full, self.compiled, self.plain, inputs, y, weight, masks, joined)

    def _compute(
        self, inputs: Any, y: Any, weight: Any, masks: Sequence[tf.Tensor | None], joined: bool
    ) -> _Result:
        """Run forward and backward, from the features if `joined`, otherwise from the looked-up vectors.

        Args:
            inputs: the features, or for each tensor of the border its parts.
            y: labels.
            weight: sample weights, or None.
            masks: Keras' masks of the border's tensors, if not `joined`.
            joined: whether the lookups take place here.
        """
        trainable = [tf.convert_to_tensor(v.value) for v in self.parts.tower.trainable_variables]
        tables = self.parts.lookup.trainable_variables
        sources = [table.value for table in tables] if joined else keras.tree.flatten(inputs)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*trainable, *(tensor for tensor in sources if tensor.dtype.is_floating)])
            with keras.StatelessScope(self._values(trainable), collect_losses=True) as scope:
                border = self._look_up(inputs) if joined else _masked(map(_joined, inputs), masks)
                with counting_rows(self.model, rows_of(inputs, y)):
                    outputs, loss = self._forward(border, y, weight, scope)
                    loss_means(self.model)[0].update_state(loss)
                expect_not_assigned(self._target.trainable_variables, trainable, scope)
                parts = (self.parts.tower, self._target)
                expect_known([v for p in parts for v in (*p.variables, *self._state(p))], scope)
                scaled = self.model.optimizer.scale_loss(loss)
        lookup_gradients, gradients = tape.gradient(scaled, (sources, trainable))
        pairs = zip(self._state(self.parts.tower), self._state(self._target), strict=True)
        updates = {
            str(id(original)): value
            for original, variable in pairs
            if (value := scope.get_current_value(variable)) is not None
        }
        masks = list(map(mask_of, keras.tree.flatten(outputs)))
        return _Result(outputs, masks, lookup_gradients, gradients, updates)

    def _values(self, trainable: Sequence[tf.Tensor]) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Values of the variables while the tower runs, including those of the layers' copies."""
        tower = self.parts.tower
        state = [tf.convert_to_tensor(v.value) for v in tower.non_trainable_variables]
        # The model's own variables as well: its regularizers read them.
        return [
            pair
            for part in (tower, self._target)
            for variables, values in (
                (part.trainable_variables, trainable),
                (part.non_trainable_variables, state),
            )
            for pair in zip(variables, values, strict=True)
        ]

    def _forward(
        self, border: Sequence[tf.Tensor], y: Any, weight: Any, scope: keras.StatelessScope
    ) -> tuple[Any, tf.Tensor]:
        outputs = keras.tree.map_structure(
            lambda value, spec: tf.cast(value, spec.dtype),
            self._target(border, training=True),
            self.parts.tower.output,
        )
        loss = self.model.compute_loss(y=y, y_pred=outputs, sample_weight=weight, training=True)
        if self._target is not self.parts.tower:
            # The activity losses of copied layers, which the model itself does not know.
            loss_ids = {id(part) for part in self.model.losses}
            unknown = [part for part in scope.losses if id(part) not in loss_ids]
            loss += sum(tf.reduce_sum(tf.cast(part, loss.dtype)) for part in unknown)
        return outputs, loss

    def _state(self, tower: keras.Model) -> list[keras.Variable]:
        """Variables besides weights that a step may change: moving averages, seeds, losses."""
        return [*tower.non_trainable_variables, *self.model.metrics_variables]

    def _assign(self, updates: Mapping[str, tf.Tensor]) -> None:
        # By identity: Keras may make metrics, which come before those of layers, after this function was traced.
        variables = {str(id(variable)): variable for variable in self._state(self.parts.tower)}
        for identity, value in updates.items():
            variables[identity].assign(value)


def cut_for_training(model: keras.Model) -> SplitModel:
    """Cut a model in two parts, each of which is trained separately.

    Raises:
        TrainingError: the model cannot be cut, or its step cannot be split.
    """
    parts = cut(model)
    expect_keras_own_step(model)
    expect_no_assignments(parts.tower)
    regularizers = (getattr(part, "activity_regularizer", None) for part in layers_of(parts.lookup))
    expect_no_losses([regularizer for regularizer in regularizers if regularizer is not None])
    regularized = [
        variable.path
        for variable in parts.lookup.trainable_variables
        if variable.regularizer is not None
    ]
    if regularized:
        raise TrainingError(
            "Expected tables without a regularizer to split the step, since it would read "
            f"whole tables. Received: one on {listed(regularized)}. "
            "Use split=False, if there is one worker."
        )
    if tf.distribute.has_strategy() or replicas.count(model) > 1:
        raise TrainingError(
            "Expected no tf.distribute strategy to split the step. Received: "
            f"{type(model.distribute_strategy).__name__} of "
            f"{replicas.count(model)} replicas. Use split=False, or a process for each GPU: "
            "training.join_workers."
        )
    return parts


def taken(model: keras.Model, x: Any) -> Any:
    """The features that a model takes.

    Keras would assign others to its inputs by position, and XLA cannot take lists and text.
    """
    inputs = getattr(model, "input", None)
    if isinstance(x, dict) and isinstance(inputs, dict):
        return {name: tensor for name, tensor in x.items() if name in inputs}
    return x


def _in_few(parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The parts, with narrow neighbours joined: for each number XLA has to find the part that holds it."""
    runs = itertools.groupby(parts, key=lambda part: len(parts) > 1 and part.shape[1] < _NARROW)
    return [tensor for narrow, run in runs for tensor in ([_joined([*run])] if narrow else run)]


def _joined(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """The tensor whose parts `concatenated` found."""
    return tf.concat(parts, axis=1) if len(parts) > 1 else parts[0]


def _trained(model: keras.Model) -> tuple[list[bool], list[int]]:
    """The layers and the weights that are trained, which a user may change after compiling."""
    return [layer.trainable for layer in layers_of(model)], list(map(id, model.trainable_variables))


def _masked(tensors: Iterable[tf.Tensor], masks: Sequence[tf.Tensor | None]) -> list[tf.Tensor]:
    """Tensors with Keras' masks put back, which tensors lose on the way into another function."""
    masked = []
    for tensor, mask in zip(tensors, masks, strict=True):
        if mask is not None:
            set_mask(tensor, mask)
        masked.append(tensor)
    return masked


def _take_masks(tower: keras.Model) -> None:
    """Keep Keras from warning that the model destroys masks, which its layers do use."""
    tower.supports_masking = True
    tower.compute_mask = lambda *_: None  # the outputs have the masks of their layers


def _widened(data: Any) -> Any:
    """Data with int32 as int64, since most operations other than XLA's copy int32 to the host."""
    return keras.tree.map_structure(
        lambda part: tf.cast(part, tf.int64) if getattr(part, "dtype", None) == tf.int32 else part,
        data,
    )


def _one_row(tensor: tf.Tensor | None) -> tf.Tensor | None:
    """Zeros like the rows of a tensor, outside of its graph."""
    if tensor is None:
        return None
    return tf.zeros([1, *(length or 1 for length in tensor.shape[1:])], tensor.dtype)


def _ones_like(tensor: tf.Tensor | None) -> tf.Tensor | None:
    return tensor if tensor is None or tensor.dtype == tf.string else tf.ones_like(tensor)


@contextmanager
def counting_rows(model: keras.Model, rows: tf.Tensor) -> Iterator[None]:
    """Let the mean losses of a batch count for its rows.

    Keras takes the length of the batch's first tensor instead, which of lists is the number of values: a
    batch with fewer of them would count less, and one of empty lists not at all. In the loss of one of
    several outputs each batch would count alike.
    """
    means = loss_means(model)
    for mean in means:
        mean.update_state = partial(_update_for, mean, rows)
    try:
        yield
    finally:
        for mean in means:  # another replica, whose step is made meanwhile, may have removed it
            vars(mean).pop("update_state", None)


def _update_for(
    mean: keras.metrics.Mean,
    rows: tf.Tensor,
    loss: tf.Tensor,
    sample_weight: Any = None,  # noqa: ARG001 - what Keras takes for the rows
) -> None:
    type(mean).update_state(mean, loss, sample_weight=rows)


def rows_of(given: Any, y: Any) -> tf.Tensor:
    """The number of rows, from the label: the tensors of a list feature have other lengths."""
    return tf.shape(by_row(given, y))[0]


def _backward(
    tape: tf.GradientTape,
    border: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor | None],
    sources: Any,
) -> Any:
    """The gradients of tables, or of vectors looked up in them, from those of the border."""
    pairs = [pair for pair in zip(border, gradients, strict=True) if pair[1] is not None]
    targets, upstream = [tensor for tensor, _ in pairs], [gradient for _, gradient in pairs]
    return tape.gradient(targets, sources, output_gradients=upstream)


def _by_variable(variables: Sequence[keras.Variable], gradients: Sequence[Any]) -> dict[int, Any]:
    return {id(v): gradient for v, gradient in zip(variables, gradients, strict=True)}
