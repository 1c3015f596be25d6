"""`KerasSequenceLoader`: parquet straight into Keras."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from loader.frameworks.epoch_dataset import EpochDataset
from loader.opening.device import open_device
from loader.opening.open_loader import arguments_in, open_loader
from loader.tensorflow.workers import current_worker
from workflow.schema.schema import Schema


class KerasSequenceLoader(EpochDataset):
    """Batches of a parquet data set, read in the background, for Keras or a custom loop.

    It is a `tf.data.Dataset`, so `model.fit`, `evaluate`, `predict` and `validation_data` accept
    it, and `map`, `take` and similar methods work. Files are read a few row groups at a time, so
    the data may be larger than memory. Every pass over it is one epoch: each row comes exactly
    once, and with `shuffle` each epoch has its own order.

    A batch is `(x, y)`. `x` is a dict, in the order of `cat_names` and then `cont_names`: a scalar
    feature is a tensor of shape (N, 1) in the file's dtype; a list feature is a pair of values of
    shape (sum of lengths, 1) and row lengths of shape (N, 1), int32. `y` is the label's tensor
    (N, 1), or a dict by name when there are several; without labels a batch is `x` alone.

    With `shuffle`, every epoch puts the row groups of all files into a new order, and each batch draws
    evenly from several of them, which are exchanged one at a time; `mixing()` says from how many. How
    much that helps was measured on data sorted by a value, in 40 row groups of 50,000 rows, one batch
    each. Compared with a random order, the means of batches deviate from the overall mean 25 times as
    much by default, 4 times with `parts_per_chunk=16`, and twice with 40. (With NVTabular's way of
    shuffling it is 219 times, at `parts_per_chunk=8`.)

    Args:
        paths_or_dataset: a parquet file, a folder, a glob pattern, a list of those, or a frame as
            `Workflow.fit` takes it: from Polars, pandas or Arrow, any object with
            `__arrow_c_stream__`, or a dict of columns. Frames are held in memory; use files for
            larger data. Folders named `key=value` add a column. Column types may differ between
            files if one type holds all values: int32 beside int64 becomes int64.
        batch_size: rows in a batch. Multiples of 64 are handed to TensorFlow without a copy.
        label_names: target columns. Default: the columns tagged as target in the schema; `[]`:
            none.
        feature_columns: `tf.feature_column` objects whose source columns are the features, instead
            of `cat_names` and `cont_names`. `[]` means none.
        cat_names: categorical features, scalars or lists.
        cont_names: continuous features. Default for both: by the schema's tags.
        engine: "parquet" or None.
        shuffle: whether to shuffle. Each row then comes exactly once in an epoch, in an order that
            depends on the seed and the epoch's number; otherwise rows come in the order of the files.
        seed_fn: called at the start of each epoch for its seed, instead of `seed`.
        buffer_size: memory for decoded rows. Below 1 it is a fraction of the device's memory, from 1 on
            a number of bytes. Row groups that are too large for it are read in parts, so that a shuffled
            batch draws from the number of row groups that `parts_per_chunk` describes, or as many as fit.
            On a GPU the 190 MB that cuDF takes for itself count too, up to half of the buffer.
        device: "cpu"; a GPU's number or "gpu:<number>", where cuDF decodes and batches stay; or
            None. None takes the first GPU if cuDF is installed, the data is in local files that are
            read without `reader_kwargs`, and all columns are numeric with one type in all files;
            else the CPU. The attribute `device` names the choice. On a GPU `map` is applied where a
            batch is used, and other transformations of `tf.data` do not work.
        parts_per_chunk: the fewest row groups from which a shuffled batch draws rows, as far as the
            buffer allows. Values up to 8, or 16 on a GPU, change nothing: a batch draws from so many
            in any case, and from all row groups if there are fewer than twice as many.
        reader_kwargs: further arguments of `polars.scan_parquet`.
        global_size: number of workers that share the data. Default: the number of workers of a
            `tf.distribute.MultiWorkerMirroredStrategy` inside its scope, else 1.
        global_rank: this worker's number. All ranks take the same number of steps: where rows do
            not divide evenly, a rank that is one row short takes one row twice. A row group on the
            border of two ranks is read by both: write more row groups than there are ranks.
        drop_last: whether to leave out a last batch that is not full.
        sparse_names: list features that become a `tf.SparseTensor` of shape (N, max); a longer row
            is an error. Other lists are pairs, even if all rows have one length.
        sparse_max: the maximum for each of `sparse_names`. Default: the `value_count` in the
            schema, as after `ListSlice` or `ValueCount`.
        sparse_as_dense: whether they become dense tensors instead, padded with 0 (or "").
        schema: names and tags of the columns. Default: `_schema.json` beside the first file.
        sample_weight: a column of numbers, in the file's dtype, that become the third member of each
            batch, `(x, y, sample_weight)`, of shape (N, 1). It is then neither feature nor label.
        seed: seed for the order of rows. Default: a new one for each loader.
        on_bad_files: "raise", or "skip" to pass over data that cannot be read, which
            `skipped_files` lists. A file is left out with a warning if its footer cannot be read,
            or if it lacks columns or has types incompatible with files before it. Row groups that
            turn out to be damaged while reading, or to hold nulls, are replaced with rows that
            follow them in the files, so that every epoch and every worker keeps its number of
            batches. A warning at the end of the epoch counts them. A damaged page that crashes the
            CUDA context of a GPU is an error in any case.
        decode_timeout: seconds that a GPU may be busy with one read before the read counts as hanging,
            which is an error: a damaged page can keep a GPU busy forever. (A read takes 0.05 seconds
            on an H200 with the default buffer.) Waiting for files does not count. None for no limit,
            as for debugging GPU code.
        storage_options: how to connect to the object stores of paths such as s3://bucket/key, as
            `polars.scan_parquet` takes it. Default: the environment. Row groups in an object store are
            fetched anew in every epoch, ahead of their use, and decoded on the CPU.

    Raises:
        LoaderError: no files, unreadable files, missing columns, columns without a common type for
            the values of all files, or invalid arguments. While reading: damaged files, nulls in
            columns that are not floats (a null float becomes NaN), and a fork of the process that
            made the loader. In `model.fit` TensorFlow wraps errors while reading in a
            `tf.errors.InvalidArgumentError`.

    Keras warns for every dataset that `fit`'s own `shuffle=True` has no effect on it;
    `model.fit(train, shuffle=False)` does the same without the warning.

    Example:
        >>> train = KerasSequenceLoader(  # doctest: +SKIP
        ...     "train/*.parquet", batch_size=65536, label_names=["rating"],
        ...     cat_names=["userId", "movieId", "genres"], buffer_size=0.06,
        ... )
        >>> model.fit(train, epochs=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        paths_or_dataset: Any,
        batch_size: int,
        label_names: Sequence[str] | None = None,
        feature_columns: Sequence[Any] | None = None,
        cat_names: Sequence[str] | None = None,
        cont_names: Sequence[str] | None = None,
        engine: str | None = None,
        shuffle: bool = True,
        seed_fn: Callable[[], int] | None = None,
        buffer_size: float = 0.1,
        device: str | int | None = None,
        parts_per_chunk: int = 1,
        reader_kwargs: Mapping[str, Any] | None = None,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        sparse_names: Sequence[str] | None = None,
        sparse_max: Mapping[str, int] | None = None,
        sparse_as_dense: bool = False,
        schema: Schema | None = None,
        *,
        sample_weight: str | None = None,
        seed: int | None = None,
        on_bad_files: Literal["raise", "skip"] = "raise",
        decode_timeout: float | None = 10.0,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        opened = open_loader(
            functools.partial(open_device, device), current_worker, **arguments_in(locals())
        )
        super().__init__(opened)
