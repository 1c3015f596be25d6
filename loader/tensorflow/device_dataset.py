"""A dataset on a GPU, whose transformations TensorFlow does not see."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from loader.epochs import Epochs
from loader.errors import LoaderError
from loader.tensorflow.batch_spec import batch_spec
from loader.tensorflow.generator_dataset import GeneratorFunctions, StreamRegistry
from loader.tensorflow.private import (
    HandleDataset,
    OwnedIterator,
    element_of,
    handle_of,
    parts_of,
)
from loader.tensorflow.sized_dataset import SizedDataset, known, refuse_reader
from loader.tensorflow.tensors import Transport

Make = Callable[[], Iterator[Any]]


def _unchanged(*batch: Any) -> Any:
    return batch if len(batch) > 1 else batch[0]


def _applied(function: Callable[..., Any], batch: Any) -> Any:
    return function(*batch) if isinstance(batch, tuple) else function(batch)


class DeviceDataset(SizedDataset):
    """A dataset on a GPU, whose batches are chosen in Python and changed where they are used.

    TensorFlow's own transformations run on the host: a compiled step that reads through one takes the
    batches for the host's memory, and the process ends.

    Args:
        make: starts one pass over the batches, as the transport arranges them.
        size: the number of batches of a pass.
        transport: transport of batches into TensorFlow.
        function: applied to `x, y`, to `x, y, weight`, or to `x` where there are no labels; by default
            nothing is.
        epochs: those of the loader.
    """

    def __init__(
        self,
        make: Make,
        size: int,
        transport: Transport,
        function: Callable[..., Any] = _unchanged,
        epochs: Epochs | None = None,
    ) -> None:
        self._make, self._transport, self._function = make, transport, function
        functions = GeneratorFunctions(StreamRegistry(make), transport)
        dataset = SizedDataset(transport.finish(functions.dataset()), size, keep=functions)
        super().__init__(dataset, size, epochs=epochs)
        before = dataset.element_spec

        def batch_of(parts: Sequence[Any]) -> Any:
            return _applied(function, element_of(before, parts))

        self._spec = batch_spec(parts_of(before), batch_of)
        spec = HandleDataset(handle_of(dataset), self._spec, [dataset])
        self._read = SizedDataset(spec, size, epochs=epochs)

    def __iter__(self) -> Any:
        """One pass."""
        with tf.device(self._transport.device):
            return OwnedIterator(self._read)

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> DeviceDataset:  # noqa: ARG002
        """`tf.data.Dataset.map`; nothing runs in parallel."""

        def both(*batch: Any) -> Any:
            return _applied(map_func, self._function(*batch))

        return DeviceDataset(self._make, self._size, self._transport, both, self._source)

    def prefetch(self, *args: Any, **kwargs: Any) -> DeviceDataset:  # noqa: ARG002
        """This dataset, which reads ahead."""
        return self

    def repeat(self, count: Any = None, *args: Any, **kwargs: Any) -> DeviceDataset:  # noqa: ARG002
        """`tf.data.Dataset.repeat`."""
        number = -1 if count is None else self._known(count)
        if not self._size:
            return self  # else an endless search for a batch

        def make() -> Iterator[Any]:
            passes = itertools.count() if number < 0 else range(number)
            return itertools.chain.from_iterable(self._make() for _ in passes)

        return self._with(make, self._repeated(number))

    def take(self, count: Any, *args: Any, **kwargs: Any) -> DeviceDataset:  # noqa: ARG002
        """`tf.data.Dataset.take`."""
        size = self._taken(self._known(count))
        stop = None if size == tf.data.INFINITE_CARDINALITY else size
        return self._with(lambda: itertools.islice(self._make(), stop), size)

    def skip(self, count: Any, *args: Any, **kwargs: Any) -> DeviceDataset:  # noqa: ARG002
        """`tf.data.Dataset.skip`."""
        number = self._known(count)
        start, stop = (0, 0) if number < 0 else (number, None)
        return self._with(
            lambda: itertools.islice(self._make(), start, stop), self._left_by(number)
        )

    def _with(self, make: Make, size: int) -> DeviceDataset:
        return DeviceDataset(make, size, self._transport, self._function, self._source)

    def _known(self, count: Any) -> int:
        number = known(count)
        if number is None:
            raise LoaderError(
                "Expected a number of batches that is known outside of a tf.function. Received: "
                f'{count}, of a loader on {self._transport.device}. Pass device="cpu" to the loader.'
            )
        return number

    def _check_reader(self) -> None:
        refuse_reader(self._transport.device)
