"""A batch's type for TensorFlow: parts in transit, tensors where they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from loader.errors import LoaderError
from loader.tensorflow.private import (
    HandleDataset,
    OwnedIterator,
    element_of,
    handle_of,
    parts_of,
)
from loader.tensorflow.sized_dataset import SizedDataset, refuse_reader

Make = Callable[[Sequence[Any]], Any]


def batch_spec(parts: Sequence[tf.TensorSpec], make: Make) -> tf.TypeSpec:
    """The spec of elements that are split inside the function that uses them.

    A dataset's elements cross from function to function, where TensorFlow would move int32 through
    the host, and where each tensor has a cost. So only the parts cross; when TensorFlow asks the
    spec for the element, the spec adds the operations that make it.

    Args:
        parts: dtype and shape of each part.
        make: makes the element from the parts.
    """

    # A class for each spec: TensorFlow compares and copies specs by class and serialised form, and
    # a function cannot be serialised.
    class BatchSpec(tf.TypeSpec):
        value_type = property(lambda _: tuple)

        def _serialize(self) -> tuple[()]:
            return ()

        @property
        def _component_specs(self) -> list[tf.TensorSpec]:
            return list(parts)

        def _to_components(self, value: Any) -> Any:
            raise NotImplementedError("A batch is split once, and not put together again.")

        def _from_components(self, components: Any) -> Any:
            return make(components)

        def _to_legacy_output_shapes(self) -> Any:
            # TensorFlow calls this first when it cuts batches for replicas.
            raise LoaderError(
                "Expected a loader on the CPU to feed several replicas, since TensorFlow cuts its "
                'batches there. Received: one on a GPU. Pass device="cpu" to it, and its '
                "distribute(strategy) to fit, which hands out whole batches."
            )

    return BatchSpec()


def _unchanged(*batch: Any) -> Any:
    return batch if len(batch) > 1 else batch[0]


class MappedDataset(SizedDataset):
    """A dataset on a GPU with a function that is applied where a batch is used.

    Args:
        dataset: a dataset on the GPU whose elements have a `batch_spec`.
        size: the number of elements in one pass.
        device: TensorFlow's name of the GPU.
        function: applied to `x, y`, or to `x` where there are no labels; by default nothing is.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        size: int,
        device: str,
        function: Callable[..., Any] = _unchanged,
    ) -> None:
        super().__init__(dataset, size)
        self._device = device
        before = dataset.element_spec

        def make(parts: Sequence[Any]) -> Any:
            batch = element_of(before, parts)
            return function(*batch) if isinstance(batch, tuple) else function(batch)

        self._spec = batch_spec(parts_of(before), make)
        self._read = HandleDataset(handle_of(dataset), self._spec, [dataset])

    def __iter__(self) -> Any:
        """One epoch, by an iterator on the GPU.

        `iter` would place it beside the last transformation, which is on the host: TensorFlow would
        take the batches for host memory.
        """
        with tf.device(self._device):
            return OwnedIterator(self._read)

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> MappedDataset:  # noqa: ARG002
        """`tf.data.Dataset.map`; nothing runs in parallel."""
        return MappedDataset(self._read, self._size, self._device, map_func)

    def _check_reader(self) -> None:
        refuse_reader(self._device)

    def _readable(self) -> tf.data.Dataset:
        return self._read

    def _with_size(self, dataset: tf.data.Dataset, size: int) -> MappedDataset:
        return MappedDataset(dataset, size, self._device)
