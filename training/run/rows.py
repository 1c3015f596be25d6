"""A count of rows: no kind of data reports how many it holds, and the last batch is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from training.private import origin


class RowCount:
    """The rows that a model's steps take, counted inside the steps.

    Not a metric, since metrics are displayed, and are saved with the model.

    Example:
        >>> rows = RowCount()
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> with rows.counting(model, lambda *batch: None):
        ...     _ = model.fit(tf.zeros((70, 1)), tf.zeros((70, 1)), verbose=0)
        >>> rows.take()
        70
    """

    def __init__(self) -> None:
        # The host knows a batch's shape.
        with tf.device("/cpu:0"):
            self._count = tf.Variable(0, trainable=False, dtype=tf.int64)

    def count(self) -> int:
        """The rows since the last call of `take`."""
        return int(self._count)

    def take(self) -> int:
        """The rows since the last call."""
        count = self.count()
        self._count.assign(0)
        return count

    @contextmanager
    def counting(self, model: keras.Model, look: Callable[..., None]) -> Iterator[None]:
        """Count while the block runs; the model is restored when it ends.

        Args:
            model: the model that is trained.
            look: called in each step with the labels, the weights of the rows, and the predictions, if the step is
                Keras' or ours.
        """
        train_step, test_step, compute = model.train_step, model.test_step, model.compute_metrics
        tests = False

        def counted(x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            if not tests:
                self._add(x, y)
            look(y, sample_weight, y_pred)
            return compute(x, y, y_pred, sample_weight=sample_weight)

        def tested(data: Any) -> Any:
            nonlocal tests
            tests = True
            try:
                return test_step(data)
            finally:
                tests = False

        def step(data: Any) -> Any:
            x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
            self._add(x, y)
            look(y, weight)
            return train_step(data)

        # A step of the user's need not call `compute_metrics`.
        is_ours = origin(train_step) in ("keras", "training")
        hooks = (
            {"compute_metrics": counted, "test_step": tested} if is_ours else {"train_step": step}
        )
        # Keras reads the attributes; without own ones the model has its class's methods.
        before = {name: vars(model)[name] for name in hooks if name in vars(model)}
        for name, hook in hooks.items():
            setattr(model, name, hook)
        try:
            yield
        finally:
            for name in hooks:
                vars(model).pop(name, None)
            for name, own in before.items():
                setattr(model, name, own)
            # They were traced with the count.
            model.train_function = model.test_function = None

    def _add(self, x: Any, y: Any) -> None:
        by_row = next(part for part in keras.tree.flatten((y, x)) if part is not None)
        # tf.shape would take a known length for a constant, and count a step that finds no batch.
        if isinstance(by_row, tf.Tensor):
            shape = tf.raw_ops.Shape(input=by_row, out_type=tf.int64)
        else:
            shape = tf.shape(by_row, out_type=tf.int64)
        self._count.assign_add(shape[0])
