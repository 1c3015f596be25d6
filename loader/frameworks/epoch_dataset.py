"""Epochs as a `tf.data.Dataset`, and the datasets derived from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from loader.epochs import Epochs
from loader.errors import LoaderError
from loader.frameworks.loader_methods import LoaderMethods
from loader.opening.open_loader import Opened
from loader.options import check_counts
from loader.tensorflow.batch_iterator import BatchIterator
from loader.tensorflow.generator_dataset import GeneratorFunctions, StreamRegistry
from loader.tensorflow.sized_dataset import SizedDataset, refuse_reader
from loader.tensorflow.tensors import Transport
from loader.tensorflow.workers import replicas_of_worker


class EpochDataset(LoaderMethods, SizedDataset):
    """A `tf.data.Dataset` in which every pass is an epoch.

    Args:
        opened: the parts of a loader, with a device that gives its batches to TensorFlow.
    """

    def __init__(self, opened: Opened) -> None:
        self._take(opened)
        self._dataset = _dataset_of(self._epochs, self._transport)
        SizedDataset.__init__(self, self._dataset, self._epochs.steps, epochs=self._epochs)

    def __iter__(self) -> BatchIterator:
        """One epoch, as an iterator over batches of eager tensors."""
        return BatchIterator(self._dataset, self._epochs.stream(), self._transport)

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> SizedDataset:
        """`tf.data.Dataset.map`, keeping the length.

        On a GPU, `map_func` is applied where a batch is used, for example inside the train step.

        Args:
            map_func: takes `x, y`, and with `sample_weight` of the loader a third argument, as TensorFlow
                symbols, and gives a batch, which may be `(x, y, sample_weight)`.
            *args: of `tf.data.Dataset.map`; ignored on a GPU.
            **kwargs: of `tf.data.Dataset.map`; ignored on a GPU. TensorFlow does not tune
                `num_parallel_calls=tf.data.AUTOTUNE` over a loader, and takes its default number.

        Example:
            >>> train.map(lambda x, y: (x, y, tf.where(y > 0, 2.0, 1.0)))  # doctest: +SKIP
        """
        return self.as_dataset().map(map_func, *args, **kwargs)

    def take(self, count: Any, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """The first batches of each epoch, as `tf.data.Dataset.take`; all for -1."""
        return self.as_dataset().take(count, *args, **kwargs)

    def skip(self, count: Any, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """Each epoch without its first batches, as `tf.data.Dataset.skip`."""
        return self.as_dataset().skip(count, *args, **kwargs)

    def prefetch(self, *args: Any, **kwargs: Any) -> SizedDataset:
        """`tf.data.Dataset.prefetch`; on a GPU the loader reads ahead as without it."""
        return self.as_dataset().prefetch(*args, **kwargs)

    def _check_reader(self) -> None:
        if self.device != "cpu":
            refuse_reader(self._transport.device)

    def repeat(self, count: int | None = None, name: str | None = None) -> SizedDataset:
        """Epochs one after another as one dataset, for `fit` with `steps_per_epoch`.

        Args:
            count: how many epochs; None or -1 for an endless dataset.
            name: not used.

        Raises:
            LoaderError: an invalid count.

        Example:
            >>> model.fit(train.repeat(), steps_per_epoch=1000, epochs=50)  # doctest: +SKIP
        """
        del name
        epochs = None if count in (None, -1) else check_counts(count=count)[0]
        return self._repeated_epochs(epochs)

    def as_dataset(self) -> tf.data.Dataset:
        """The loader as a plain `tf.data.Dataset` of known length.

        On a GPU, of the transformations of `tf.data` only `map`, `repeat`, `take`, `skip` and
        `prefetch` read a loader; the others are refused.

        Example:
            >>> dataset = train.as_dataset().prefetch(1)  # doctest: +SKIP
        """
        return self._dataset if self.device == "cpu" else self._repeated_epochs(1)

    def _repeated_epochs(self, count: int | None) -> SizedDataset:
        if self.device == "cpu":
            return _dataset_of(self._epochs, self._transport, count)
        from loader.tensorflow.device_dataset import DeviceDataset  # noqa: PLC0415 - only where there is a GPU

        size = _size_of(self._epochs, count)
        epochs = self._epochs
        return DeviceDataset(lambda: epochs.stream(count), size, self._transport, epochs=epochs)

    def distribute(self, strategy: tf.distribute.Strategy) -> tf.distribute.DistributedDataset:
        """Batches for the replicas of a strategy: in each step every replica takes one.

        `fit` and `strategy.experimental_distribute_dataset` would cut each batch into as many parts
        as there are replicas, which is right for scalars and padded lists, and wrong for pairs of
        values and row lengths. This method cuts nothing, so `batch_size` is the batch size of one
        replica. With such pairs, compile the model by `training.compile_model(..., split=False)`,
        or call `training.train`: Keras alone builds a model from the mean of the replicas' batches.

        Args:
            strategy: the strategy in whose scope the model was made.

        Raises:
            LoaderError: the loader is on a GPU, and there are several replicas.

        Example:
            >>> model.fit(train.distribute(strategy))  # doctest: +SKIP
        """
        if self.device != "cpu" and int(strategy.num_replicas_in_sync) > 1:
            raise LoaderError(
                "Expected a loader on the CPU to feed several replicas, since TensorFlow hands "
                f"batches out from there. Received: a loader on {self.device}. "
                'Pass device="cpu" to it.'
            )
        replicas = replicas_of_worker(strategy, self._epochs.settings.share.size)
        dataset = SizedDataset(self._dataset, -(-len(self) // replicas))
        return strategy.distribute_datasets_from_function(lambda _: dataset)


def _dataset_of(epochs: Epochs, transport: Transport, count: int | None = 1) -> SizedDataset:
    """A dataset of `count` epochs as if they were one; None for an endless dataset."""
    generator = GeneratorFunctions(StreamRegistry(lambda: epochs.stream(count)), transport)
    dataset = transport.finish(generator.dataset())
    if epochs.settings.share.size > 1:  # tf.distribute must not share it out again
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options)
    return SizedDataset(dataset, _size_of(epochs, count), keep=generator, epochs=epochs)


def _size_of(epochs: Epochs, count: int | None) -> int:
    return tf.data.INFINITE_CARDINALITY if count is None else epochs.steps * count
