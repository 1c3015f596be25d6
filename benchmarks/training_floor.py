"""What no training step on a CPU can go below: the matrix products of its dense layers."""

from __future__ import annotations

import itertools
import time

import tensorflow as tf

from benchmarks.training_data import Shape


class Products:
    """The products of a multi-layer perceptron, forward and backward, and nothing else.

    Without biases, activations, lookups and updates; by TensorFlow's kernels (oneDNN), in float32.
    It takes turns as a contestant does.

    Args:
        name: for the table.
        shape: of the model.
        batch: rows.
        steps: of a turn.
    """

    loss = float("nan")

    def __init__(self, name: str, shape: Shape, batch: int, steps: int) -> None:
        self.name = name
        self.times: list[float] = []
        self.work: list[float] = []
        self._steps = steps
        width = len(shape.numbers) + len(shape.scalars) * shape.width
        sizes = itertools.pairwise([width, *shape.hidden, 1])
        self._weights = [tf.random.normal(size) for size in sizes]
        self._x = tf.random.normal((batch, width))
        self._function = tf.function(self._multiply, autograph=False)
        self._function()

    def run(self) -> None:
        """Multiplies as often as a turn has steps, and keeps the time."""
        start, work = time.perf_counter(), time.process_time()
        for _ in range(self._steps):
            self._function()
        self.times.append((time.perf_counter() - start) / self._steps)
        self.work.append((time.process_time() - work) / self._steps)

    def _multiply(self) -> list[tf.Tensor]:
        taken = [self._x]
        for kernel in self._weights:
            taken.append(tf.matmul(taken[-1], kernel))
        upstream, products = taken.pop(), []
        for kernel in reversed(self._weights):
            products.append(tf.matmul(taken.pop(), upstream, transpose_a=True))
            upstream = tf.matmul(upstream, kernel, transpose_b=True)
        return [*products, upstream]
