"""List features as `tf.SparseTensor`s, made of the pairs in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.errors import LoaderError
from loader.layout import BatchColumn, Layout
from loader.tensors import Transport


class SparseTransport:
    """Brings batches into TensorFlow as another transport does, then makes sparse tensors.

    Args:
        transport: what brings pairs of values and row lengths.
        layout: the columns of a batch.

    Raises:
        LoaderError: on a GPU, where TensorFlow has sparse tensors' row numbers on the host.
    """

    def __init__(self, transport: Transport, layout: Layout) -> None:
        if transport.device != "/cpu:0":
            raise LoaderError(
                "Expected sparse_as_dense=True with sparse_names on a GPU. Received: False. "
                'Pad to dense tensors, or pass device="cpu".'
            )
        self.device = transport.device
        self.specs = transport.specs
        self.element_spec = transport.element_spec
        self._transport = transport
        self._sparse = [column for column in layout.features if column.is_sparse]

    def call(self, function: Callable[..., Any], inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """See `Transport`."""
        return self._transport.call(function, inputs)

    def arrange(self, parts: Sequence[Any]) -> list[Any]:
        """See `Transport`."""
        return self._transport.arrange(parts)

    def to_batch(self, parts: Sequence[Any]) -> Any:
        """See `Transport`."""
        batch = self._transport.to_batch(parts)
        return self.convert(*batch) if isinstance(batch, tuple) else self.convert(batch)

    def convert(self, x: dict[str, Any], *labels: Any) -> Any:
        """A batch with sparse tensors in the place of pairs; for `tf.data.Dataset.map` too."""
        x = {**x, **{column.name: _to_sparse(x[column.name], column) for column in self._sparse}}
        return (x, *labels) if labels else x


def _to_sparse(pair: tuple[tf.Tensor, tf.Tensor], column: BatchColumn) -> tf.SparseTensor:
    values, lengths = pair
    ragged = tf.RaggedTensor.from_row_lengths(values[:, 0], lengths[:, 0], validate=False)
    found = ragged.to_sparse()
    shape = tf.stack([found.dense_shape[0], tf.constant(column.width, tf.int64)])
    # A constant width lets Keras know the static shape (None, width).
    return tf.SparseTensor(found.indices, found.values, shape)
