"""Several training steps a call, without waiting for the GPU between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from training.parallel.failures import together, wait_for_gpu
from training.private import origin
from training.split.exchange import Exchange
from training.split.step import counting_rows, rows_of, taken

_KINDS = ("train", "test", "predict")
_REPLACED = [name for kind in _KINDS for name in (f"make_{kind}_function", f"{kind}_step")]


def install(model: keras.Model, exchange: Exchange | None = None) -> None:
    """Give a compiled model a training function that lets the host run ahead of the GPU.

    Keras' own function joins several steps by conditions in the graph: whether steps are left, and
    whether there is a batch. TensorFlow copies these conditions to the GPU, behind all queued work,
    and sends dependent operations only afterwards. So the GPU waits for the host after each step.
    Here the host decides, in Python.

    Args:
        model: a compiled model.
        exchange: with the other workers, if there are any.
    """

    def make_train_function(force: bool = False) -> None:
        if model.train_function is None or force:
            function = _TrainFunction(model)
            model.train_function = (
                function if exchange is None else _Together(function, exchange, trains=True)
            )
        if exchange is not None:
            exchange.begin_fit()  # Keras calls this as `fit` begins

    model.make_train_function = make_train_function


def install_rows(model: keras.Model) -> None:
    """Let Keras' own steps leave out columns that the model does not take, and count losses by rows.

    See `counting_rows`. A step of the user's stays as it is, and a `call` or `compute_loss` of theirs may
    read all columns.
    """
    leaves_out = all(origin(getattr(model, name)) == "keras" for name in ("call", "compute_loss"))

    def by_rows(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(data: Any) -> Any:
            x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
            x = taken(model, x) if leaves_out else x
            with counting_rows(model, rows_of(x, y)):
                return step((x, y, weight))

        return counted

    for name in (f"{kind}_step" for kind in _KINDS):
        step = getattr(model, name)
        if origin(step) == "keras":
            setattr(model, name, by_rows(step))


def install_lookups(model: keras.Model, exchange: Exchange) -> None:
    """Let workers evaluate and predict together, as lookups in divided tables need it."""
    model_class = type(model)
    for kind in ("test", "predict"):
        setattr(model, f"{kind}_step", exchange.evaluated(getattr(model, f"{kind}_step")))

    def divided(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        everywhere = _Together(function, exchange)
        return lambda data: everywhere(data) if exchange.looks_up else function(data)

    def make_test_function(force: bool = False) -> None:
        if model.test_function is None or force:
            model_class.make_test_function(model, force=True)
            model.test_function = divided(model.test_function)

    def make_predict_function(force: bool = False) -> Any:
        if model.predict_function is None or force:
            model_class.make_predict_function(model, force=True)
            model.predict_function = divided(model.predict_function)
        return model.predict_function

    model.make_test_function = make_test_function
    model.make_predict_function = make_predict_function


def install_compile(model: keras.Model) -> None:
    """Let the model's own `compile` restore its own functions for training, evaluation and prediction.

    The split step knows the loss, the metrics and the optimizer with which it was traced.
    """

    def by_keras(*args: Any, **kwargs: Any) -> None:
        for name in ("compile", *_REPLACED):
            if origin(vars(model).get(name)) == "training":
                del vars(model)[name]
        model.compile(*args, **kwargs)

    model.compile = by_keras


class _TrainFunction:
    """The function that Keras calls for `steps_per_execution` steps, or fewer if batches run out.

    Keras reads the metrics after each call, which waits for the GPU.
    """

    def __init__(self, model: keras.Model) -> None:
        self._most = model.steps_per_execution
        step = model.train_step
        # `train_on_batch` passes lists of many lengths: one graph serves them all.
        self._step = tf.function(step, autograph=False, reduce_retracing=True)
        self._next_step = tf.function(
            lambda iterator: step(_present(iterator.get_next())), autograph=False
        )

    def __call__(self, iterator: Iterator[Any]) -> Mapping[str, tf.Tensor]:
        """Train on the next batches.

        Args:
            iterator: TensorFlow's iterator of a dataset, or a Python iterator from
                `train_on_batch`.

        Returns:
            The metrics after the last step.

        Raises:
            tf.errors.OutOfRangeError: there is no batch.
        """
        if not isinstance(iterator, tf.data.Iterator):
            for batch in itertools.islice(iterator, self._most):
                logs = self._step(batch)
            return logs
        logs = self._next_step(iterator)
        try:
            for _ in range(self._most - 1):
                logs = self._next_step(iterator)
        except tf.errors.OutOfRangeError:
            pass  # there were batches for these steps only
        return logs


class _Together:
    """A step function of Keras that runs each step on all workers."""

    def __init__(
        self, function: Callable[[Any], Any], exchange: Exchange, *, trains: bool = False
    ) -> None:
        self._function = function
        self._exchange = exchange
        self._trains = trains

    def __call__(self, iterator: Iterator[Any]) -> Any:
        """Call the function.

        Raises:
            TrainingError: the workers differ, or one is lost.
        """
        with together(self._exchange.workers):
            self._exchange.prepare(iterator)
            self._exchange.steps.begin(iterator, trains=self._trains)
            try:
                logs = self._function(iterator)
            except tf.errors.OutOfRangeError:
                self._exchange.steps.end()
                raise
            except tf.errors.OpError as error:
                self._exchange.steps.check(error)
                raise
            wait_for_gpu(self._exchange.workers, logs)
            return logs


def _present(batch: Any) -> Any:
    """The batch with None for missing parts; Keras passes those as an empty Optional."""
    return keras.tree.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch
    )
