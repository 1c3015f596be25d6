"""Batches for the training benchmarks, made once and kept where the training runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Shape:
    """What a model is trained on.

    Attributes:
        continuous: the number of float32 columns.
        cardinalities: of the columns of single ids.
        lists: of the columns of lists.
        length: of every list.
        width: of the embeddings.
        hidden: the widths of the dense layers.
    """

    continuous: int
    cardinalities: tuple[int, ...]
    lists: tuple[int, ...]
    length: int
    width: int
    hidden: tuple[int, ...]

    def shrunk(self, factor: int) -> Shape:
        """The same with smaller tables, for a smaller machine."""

        def small(sizes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(max(4, size // factor) for size in sizes)

        return replace(self, cardinalities=small(self.cardinalities), lists=small(self.lists))

    @property
    def numbers(self) -> list[str]:
        """Names of the continuous columns."""
        return [f"I{number}" for number in range(1, self.continuous + 1)]

    @property
    def scalars(self) -> dict[str, int]:
        """Name -> cardinality of the columns of single ids."""
        return {f"C{number}": rows for number, rows in enumerate(self.cardinalities, 1)}

    @property
    def multi(self) -> dict[str, int]:
        """Name -> cardinality of the columns of lists."""
        return {f"L{number}": rows for number, rows in enumerate(self.lists, 1)}


def _spread(count: int, most: int) -> tuple[int, ...]:
    return tuple(int(rows) for rows in np.geomspace(10, most, count))


CRITEO = Shape(13, _spread(26, 1_000_000), (), 0, 16, (1024, 1024, 1024, 1024))
# Of the seeds: 10 numeric and 40 categorical columns, three of them 10-hot.
WIDE_AND_DEEP = Shape(10, _spread(37, 4_000_000), (1000, 20_000, 500_000), 10, 32, (1024, 512, 256))


def make_batch(shape: Shape, rows: int, ids: str, seed: int) -> tuple[dict[str, Any], Any]:
    """Features and label of one batch, as the loader gives them; some lists are empty."""
    random = np.random.default_rng(seed)

    def drawn(count: int, cardinality: int) -> Any:
        return (random.zipf(1.2, (count, 1)) % cardinality).astype(ids)

    features: dict[str, Any] = {
        name: random.standard_normal((rows, 1), np.float32) for name in shape.numbers
    }
    features |= {name: drawn(rows, cardinality) for name, cardinality in shape.scalars.items()}
    for name, cardinality in shape.multi.items():
        lengths = np.full((rows, 1), shape.length, ids)
        lengths[::100] = 0
        features[name] = (drawn(int(lengths.sum()), cardinality), lengths)
    score = features["I1"] + (features["C1"] % 3 == 0) - (features["C2"] % 2 == 0)
    label = (score + random.standard_normal((rows, 1)) > 0.5).astype(np.float32)
    return features, label


def on_device(shape: Shape, rows: int, ids: str, count: int) -> list[Any]:
    """Batches as tensors on the GPU, if there is one."""
    with tf.device(device()):
        return [
            tf.nest.map_structure(tf.convert_to_tensor, make_batch(shape, rows, ids, seed))
            for seed in range(count)
        ]


def device() -> str:
    """Where training runs."""
    return "/gpu:0" if tf.config.list_physical_devices("GPU") else "/cpu:0"


class Repeated(tf.data.Dataset):
    """Batches on a device, over and over, without leaving it.

    Args:
        batches: nested tensors, all of one structure.
    """

    def __init__(self, batches: list[Any]) -> None:
        flat = [tf.nest.flatten(batch) for batch in batches]
        self._spec = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype), batches[0]
        )
        specs = tf.nest.flatten(self._spec)
        endless = itertools.cycle(flat)
        self._functions = _functions(lambda: next(endless), specs)
        with tf.device(device()):
            variant = tf.raw_ops.GeneratorDataset(
                init_func_other_args=[],
                next_func_other_args=[],
                finalize_func_other_args=[],
                init_func=self._functions[0],
                next_func=self._functions[1],
                finalize_func=self._functions[2],
                output_types=[spec.dtype for spec in specs],
                output_shapes=[spec.shape for spec in specs],
            )
        super().__init__(variant)

    @property
    def element_spec(self) -> Any:
        """The structure of a batch."""
        return self._spec

    def _inputs(self) -> list[tf.data.Dataset]:
        return []


def _functions(take: Callable[[], list[tf.Tensor]], specs: list[tf.TensorSpec]) -> tuple[Any, ...]:
    number = tf.TensorSpec((), tf.int64)

    def start() -> tf.Tensor:
        return tf.constant(0, tf.int64)

    def advance(stream: tf.Tensor) -> list[tf.Tensor]:  # noqa: ARG001 - TensorFlow passes it
        with tf.device(device()):
            tensors = tf.py_function(take, [], [spec.dtype for spec in specs])
        for tensor, spec in zip(tensors, specs, strict=True):
            tensor.set_shape(spec.shape)
        return tensors

    def finish(stream: tf.Tensor) -> tf.Tensor:  # noqa: ARG001 - TensorFlow passes it
        return tf.constant(0, tf.int64)

    # Without the attribute TensorFlow takes integers of functions for shapes, on the host.
    attributes = {"experimental_ints_on_device": True}
    return (
        tf.function(start, autograph=False).get_concrete_function(),
        tf.function(
            advance, autograph=False, experimental_attributes=attributes
        ).get_concrete_function(number),
        tf.function(finish, autograph=False).get_concrete_function(number),
    )
