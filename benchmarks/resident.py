"""Batches that are made once and stay where the training runs, so that no loader is measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.data import shaped_clicks
from benchmarks.models import Shape
from loader.gpu.column_matrix import carrier
from loader.tensorflow.batch_spec import batch_spec
from loader.tensorflow.generator_dataset import GeneratorFunctions, StreamRegistry


def make_batch(shape: Shape, rows: int, ids: str, seed: int) -> tuple[dict[str, Any], Any]:
    """Features and label of one batch, as the loader gives them; some lists are empty."""
    frame = shaped_clicks(shape, rows, np.random.default_rng(seed))
    features: dict[str, Any] = {n: frame[n].to_numpy().reshape(-1, 1) for n in shape.numbers}
    for name in shape.scalars:
        features[name] = frame[name].to_numpy().astype(ids).reshape(-1, 1)
    lengths = np.full((rows, 1), shape.length, ids)
    lengths[::100] = 0
    for name in shape.multi:
        values = frame[name].explode(empty_as_null=False).to_numpy().reshape(rows, shape.length)
        features[name] = (values[lengths[:, 0] > 0].astype(ids).reshape(-1, 1), lengths)
    return features, frame["label"].to_numpy().reshape(-1, 1)


def batches(shape: Shape, rows: int, ids: str, rank: int = 0) -> list[Any]:
    """Four batches as tensors on the GPU, if TensorFlow has one; other ones for each worker."""
    with tf.device(device()):
        return [
            tf.nest.map_structure(tf.convert_to_tensor, make_batch(shape, rows, ids, seed))
            for seed in range(4 * rank, 4 * rank + 4)
        ]


def repeated(batches: list[Any]) -> tf.data.Dataset:
    """Batches over and over: on a GPU without leaving it, on the CPU from TensorFlow's datasets."""
    if device() == "/gpu:0":
        return Resident(batches)
    datasets = map(tf.data.Dataset.from_tensors, batches)
    return reduce(tf.data.Dataset.concatenate, datasets).repeat()


def device() -> str:
    """The device on which training runs."""
    return "/gpu:0" if tf.config.get_visible_devices("GPU") else "/cpu:0"


class Resident(tf.data.Dataset):
    """Batches on a device, over and over, without leaving it.

    They travel as the loader's do on a GPU: ids as floats, bit for bit, since TensorFlow moves
    int32 through the host, and each batch is put together inside the function that uses it.

    Args:
        batches: nested tensors, all of one structure.
    """

    def __init__(self, batches: list[Any]) -> None:
        transport = _Transport(batches[0])
        parts = [_carried(batch) for batch in batches]
        # The functions must outlive the dataset.
        self._functions = GeneratorFunctions(StreamRegistry(lambda: _endless(parts)), transport)
        self._spec = transport.element_spec
        dataset = self._functions.dataset()
        super().__init__(dataset._variant_tensor)  # noqa: SLF001 - all that a dataset is made of

    @property
    def element_spec(self) -> Any:
        """The structure of a batch."""
        return self._spec

    def _inputs(self) -> list[tf.data.Dataset]:
        return []


def _carried(batch: Any) -> list[tf.Tensor]:
    return [tf.bitcast(part, carrier(part.dtype.name)) for part in tf.nest.flatten(batch)]


def _endless(parts: list[list[tf.Tensor]]) -> Any:
    while True:
        yield from parts


class _Transport:
    """Tensors that are on the device already; see `loader.tensorflow.tensors.Transport`."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._dtypes = [tensor.dtype for tensor in tf.nest.flatten(batch)]
        self.device = device()
        self.specs = [
            tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype) for tensor in _carried(batch)
        ]
        self.element_spec = batch_spec(self.specs, self.to_batch)

    def arrange(self, parts: Sequence[Any]) -> list[Any]:
        """They come in the order of the specs."""
        return list(parts)

    def call(self, function: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Unlike `tf.numpy_function` this leaves tensors where they are."""
        return tf.py_function(function, inputs, [spec.dtype for spec in self.specs])

    def to_batch(self, parts: Any) -> Any:
        """The columns in their own dtypes again."""
        tensors = [tf.bitcast(*pair) for pair in zip(parts, self._dtypes, strict=True)]
        return tf.nest.pack_sequence_as(self._batch, tensors)

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Nothing: batches are put together where they are used."""
        return dataset
