"""`ArrayLoader`: parquet as numpy arrays, for any framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from loader.files.layout import BatchLayout
from loader.frameworks.array_batches import HostBatches, open_arrays
from loader.frameworks.loader_methods import LoaderMethods
from loader.opening.open_loader import Data, OpenedDevice, arguments_in, open_loader
from loader.options import check_counts
from workflow.schema.schema import Schema


class ArrayLoader(LoaderMethods):
    """Batches of a parquet data set as numpy arrays, read in the background.

    The batches are those of `KerasSequenceLoader` for the same arguments and seed: their rows, their
    order, the share of each worker, `get_state` and `mixing()`. TensorFlow is not needed, and not
    imported. Every pass is one epoch; `len` is its number of batches.

    A batch is `(x, y)`. `x` is a dict, in the order of `cat_names` and then `cont_names`: a scalar
    feature is an array of shape (N, 1) in the file's dtype; a list feature is a pair of values of
    shape (sum of lengths, 1) and row lengths of shape (N, 1), int32. `y` is the label's array
    (N, 1), or a dict by name when there are several; without labels a batch is `x` alone. Arrays
    belong to their batch: nothing else reads or writes their memory.

    Args:
        paths_or_dataset: as in `KerasSequenceLoader`, and so are arguments that are not named here.
        batch_size: rows in a batch.
        label_names: target columns.
        cat_names: categorical features.
        cont_names: continuous features.
        shuffle: whether to shuffle.
        seed_fn: called at the start of each epoch for its seed, instead of `seed`.
        buffer_size: memory for decoded rows, a fraction of the device's below 1, bytes from 1 on.
        device: "cpu"; or a GPU's number or "gpu:<number>", where cuDF decodes. There the batches are
            TensorFlow's tensors, so it has to be installed; another framework takes them as
            `from_dlpack(loader.gpu.exported_tensor.ExportedTensor(tensor))`, without a copy. None
            is as in `KerasSequenceLoader`, and the CPU where TensorFlow is not installed.
        parts_per_chunk: the fewest row groups from which a shuffled batch draws rows.
        reader_kwargs: further arguments of `polars.scan_parquet`.
        global_size: number of workers that share the data.
        global_rank: this worker's number.
        drop_last: whether to leave out a last batch that is not full.
        sparse_names: list features that become arrays of shape (N, max), padded with 0 (or "").
        sparse_max: the maximum for each of `sparse_names`.
        schema: names and tags of the columns.
        sample_weight: a column whose values become the third member of each batch.
        seed: seed for the order of rows. Default: a new one for each loader.
        on_bad_files: "raise", or "skip" to pass over data that cannot be read.
        decode_timeout: seconds that a GPU may be busy with one read.
        storage_options: how to connect to the object stores of paths such as s3://bucket/key, as
            `polars.scan_parquet` takes it.

    Raises:
        LoaderError: as `KerasSequenceLoader` does.

    Example:
        Keras 3 on any backend takes the generator:

        >>> train = ArrayLoader(  # doctest: +SKIP
        ...     "train/*.parquet", batch_size=65536, label_names=["rating"], cat_names=["userId"]
        ... )
        >>> model.fit(train.repeat(), steps_per_epoch=len(train), epochs=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        paths_or_dataset: Any,
        batch_size: int,
        label_names: Sequence[str] | None = None,
        cat_names: Sequence[str] | None = None,
        cont_names: Sequence[str] | None = None,
        *,
        shuffle: bool = True,
        seed_fn: Callable[[], int] | None = None,
        buffer_size: float = 0.1,
        device: str | int | None = "cpu",
        parts_per_chunk: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        sparse_names: Sequence[str] | None = None,
        sparse_max: Mapping[str, int] | None = None,
        schema: Schema | None = None,
        sample_weight: str | None = None,
        seed: int | None = None,
        on_bad_files: Literal["raise", "skip"] = "raise",
        decode_timeout: float | None = 10.0,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        opened = open_loader(
            lambda data: self._open(device, data),
            self._current_worker,
            feature_columns=None,
            engine=None,
            sparse_as_dense=True,
            **arguments_in(locals()),
        )
        self._take(opened)

    def __iter__(self) -> Iterator[Any]:
        """One epoch of batches."""
        return map(self._transport.to_batch, self._epochs.stream())

    def repeat(self, count: int | None = None) -> Iterator[Any]:
        """Epochs one after another as a generator.

        Args:
            count: how many; None for an endless generator.

        Raises:
            LoaderError: an invalid count.

        Example:
            >>> model.fit(train.repeat(), steps_per_epoch=len(train))  # doctest: +SKIP
        """
        epochs = None if count is None else check_counts(count=count)[0]
        # Keras distinguishes generators from other iterators.
        return (self._transport.to_batch(batch) for batch in self._epochs.stream(epochs))

    def _open(self, device: Any, data: Data) -> OpenedDevice:
        self._check(data.layout)
        host = HostBatches(data.layout, self._tensors)
        return open_arrays(device, data, host, self._from_gpu, self._columns_of_gpu)

    def _current_worker(self) -> tuple[int, int] | None:
        """The number of workers and this one's number, if the framework knows them."""
        return None

    def _check(self, layout: BatchLayout) -> None:
        """Refuse columns that the framework has no tensors for."""

    def _tensors(self, arrays: Sequence[Any]) -> Iterable[Any]:
        """Arrays as the framework's tensors."""
        return arrays

    def _from_gpu(self, tensor: Any) -> Any:
        """A tensor of TensorFlow on a GPU as the framework's tensor."""
        return tensor

    def _columns_of_gpu(self, batch: Any, transport: Any) -> Sequence[Any] | None:
        """The columns of a `DeviceBatch`'s matrices as tensors, or None to convert TensorFlow's."""
