"""List features as `tf.SparseTensor`s, made from pairs of values and row lengths.

On a GPU TensorFlow cannot sum integers, and moves int32 through the host to reshape it. So
positions are counted as float64, which is exact, and shapes change as floats, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.files.layout import BatchColumn, BatchLayout
from loader.tensorflow.batch_spec import batch_spec
from loader.tensorflow.private import element_of
from loader.tensorflow.tensors import Transport


class SparseTransport:
    """Another transport of batches into TensorFlow, and sparse tensors of its tensors.

    Args:
        transport: transport of pairs of values and row lengths.
        layout: the columns of a batch.
    """

    def __init__(self, transport: Transport, layout: BatchLayout) -> None:
        self.device = transport.device
        self.specs = transport.specs
        self.element_spec = transport.element_spec
        self._to_sparse = _to_sparse
        if self.device != "/cpu:0":  # on a GPU a batch is made where it is used
            self.element_spec = batch_spec(self.specs, self._make)
            self._to_sparse = _to_sparse_on_gpu
        self._transport = transport
        self._sparse = [column for column in layout.features if column.is_sparse]

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """See `Transport`."""
        return self._transport.call(function, inputs)

    def arrange(self, batch: Any) -> list[Any]:
        """See `Transport`."""
        return self._transport.arrange(batch)

    def to_batch(self, batch: Any) -> Any:
        """See `Transport`."""
        return self._converted(self._transport.to_batch(batch))

    def _make(self, parts: Sequence[Any]) -> Any:
        """A batch from the parts that crossed into TensorFlow."""
        return self._converted(element_of(self._transport.element_spec, parts))

    def _converted(self, batch: Any) -> Any:
        return self.convert(*batch) if isinstance(batch, tuple) else self.convert(batch)

    def finish(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """See `Transport`."""
        dataset = self._transport.finish(dataset)
        return dataset.map(self.convert) if self.device == "/cpu:0" else dataset

    def convert(self, x: dict[str, Any], *labels: Any) -> Any:
        """A batch with sparse tensors in place of pairs."""
        x = x | {column.name: self._to_sparse(x[column.name], column) for column in self._sparse}
        return (x, *labels) if labels else x


def _to_sparse(pair: tuple[tf.Tensor, tf.Tensor], column: BatchColumn) -> tf.SparseTensor:
    values, lengths = pair
    ragged = tf.RaggedTensor.from_row_lengths(values[:, 0], lengths[:, 0], validate=False)
    sparse = ragged.to_sparse()
    return _with_width(sparse.indices, sparse.values, sparse.dense_shape[0], column)


def _to_sparse_on_gpu(pair: tuple[tf.Tensor, tf.Tensor], column: BatchColumn) -> tf.SparseTensor:
    """The same without summing or reshaping integers; slower on a CPU."""
    values = _flat(pair[0])
    lengths = tf.cast(pair[1], tf.float64)[:, 0]
    ends = tf.cumsum(lengths)
    places = tf.cumsum(tf.ones_like(values, tf.float64), exclusive=True)
    rows = tf.searchsorted(ends, places, side="right", out_type=tf.int64)
    columns = tf.cast(places - tf.gather(ends - lengths, rows), tf.int64)
    indices = tf.stack([rows, columns], axis=1)
    return _with_width(indices, values, tf.shape(lengths, tf.int64)[0], column)


def _with_width(
    indices: tf.Tensor, values: tf.Tensor, rows: tf.Tensor, column: BatchColumn
) -> tf.SparseTensor:
    # A constant width lets Keras know the static shape (None, width).
    shape = tf.stack([rows, tf.constant(column.width, tf.int64)])
    return tf.SparseTensor(indices, values, shape)


def _flat(values: tf.Tensor) -> tf.Tensor:
    """Elements (nnz, 1) as (nnz,)."""
    if values.dtype != tf.int32:
        return tf.reshape(values, [-1])
    return tf.bitcast(tf.reshape(tf.bitcast(values, tf.float32), [-1]), tf.int32)
