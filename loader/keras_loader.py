"""`KerasSequenceLoader`: parquet straight into Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from loader.batches.process import expect_polars
from loader.device import open_device
from loader.epochs import Epochs, Settings
from loader.files.layout import batch_schema, fixed_widths, make_layout, resolve_names
from loader.options import check_choices, check_counts, make_seed, make_share, rows_in_buffer
from loader.order.plan import split_row_groups
from loader.order.position import Trail
from loader.read.source import open_data
from loader.tensorflow.epoch_dataset import EpochDataset
from loader.tensorflow.sparse import SparseTransport
from loader.tensorflow.tensors import Transport
from workflow.schema.schema import Schema


class KerasSequenceLoader(EpochDataset):
    """Batches of a parquet data set, read in the background, for Keras or a loop of your own.

    It is a `tf.data.Dataset`, so `model.fit`, `evaluate`, `predict` and `validation_data` take it
    as it is, and `map`, `take` and the like work on it. Files are read a few row groups at a
    time, so the data may be larger than memory. Every pass over it is one epoch: each row comes
    exactly once, and with `shuffle` each epoch has its own order.

    A batch is `(x, y)`. `x` is a dict, in the order of `cat_names` and then `cont_names`: a scalar
    feature is a tensor of shape (N, 1) in the file's dtype; a list feature is a pair of values of
    shape (sum of lengths, 1) and row lengths of shape (N, 1), int32. `y` is the label's tensor
    (N, 1), or a dict by name when there are several; without labels a batch is `x` alone.

    Shuffling orders the row groups of all files anew in every epoch and then mixes the rows of
    each `parts_per_chunk` consecutive row groups. For data sorted by a value, in 40 row groups of
    one batch each, batches stray from the mean by 32 times chance with `parts_per_chunk=1`, 9
    times with 8 (31 times, had the row groups kept their order) and by chance alone with 40.

    Args:
        paths_or_dataset: a parquet file, a folder, a glob pattern, a list of those, or a frame as
            `Workflow.fit` takes it: of Polars, pandas or Arrow, any object with
            `__arrow_c_stream__`, or a dict of columns (which are held in memory; use files for
            data larger than that). Folders `key=value` are columns. Files may differ in types
            where one holds the values of all: int32 beside int64 is int64.
        batch_size: rows in a batch. Multiples of 64 are handed to TensorFlow without a copy.
        label_names: target columns. Default: those tagged as target in the schema; `[]`: none.
        feature_columns: `tf.feature_column` objects whose source columns are the features,
            instead of `cat_names` and `cont_names`. `[]` is none.
        cat_names: categorical features, scalars or lists.
        cont_names: continuous features. Default for both: by the schema's tags.
        engine: "parquet" or None.
        shuffle: whether to shuffle.
        seed_fn: called at the start of each epoch for its seed, instead of `seed`.
        buffer_size: memory for decoded rows: a fraction of the device's memory below 1, bytes
            from 1 on. Row groups too large for it are read in parts. On a GPU the 190 MB that
            cuDF takes for itself count as well, as half of the buffer at the most.
        device: "cpu"; a GPU's number or "gpu:<number>", where cuDF decodes and batches stay; or
            None for the first GPU, where there is one, cuDF is installed, the data is in files
            and its columns are numbers, of one type in all files, and else for the CPU. The
            attribute `device` tells. On a
            GPU `map` is applied where a batch is used, and other transformations of `tf.data` do
            not work.
        parts_per_chunk: row groups whose rows are shuffled together, as far as the buffer allows.
        reader_kwargs: further arguments of `polars.scan_parquet`.
        global_size: number of workers that share the data. Default: in the scope of a
            `tf.distribute.MultiWorkerMirroredStrategy` its workers, else one.
        global_rank: this worker's number. All ranks take the same number of steps: where rows do
            not divide evenly, a rank that is one row short takes one row twice. Row groups on
            the border of two ranks are read by both: write more of them than there are ranks.
        drop_last: leave a last batch out that is not full.
        sparse_names: list features that become a `tf.SparseTensor` of shape (N, max); a longer
            row is an error. Lists not named here are pairs, also where all are of one length.
        sparse_max: the maximum for each of `sparse_names`. Default: the `value_count` that the
            schema tells, as after `ListSlice` or `ValueCount`.
        sparse_as_dense: whether they become dense tensors instead, filled up with 0 (or "").
        schema: names and tags of the columns. Default: `_schema.json` beside the first file.
        seed: for the order of rows. Default: a new one each time.
        on_bad_files: "raise", or "skip" to pass over what cannot be read, which `skipped_files`
            lists. A file is left out with a warning if its footer cannot be read or it lacks columns,
            or has one as a type that makes no table with those of files before it. Row groups that
            turn out to be damaged while reading, or to hold nulls, are replaced with rows that
            follow them in the files: so every epoch and every worker keeps its number of batches.
            A warning at the end of the epoch counts them. On a GPU some damage costs the process
            its use of the GPU, which is an error in any case.
        decode_timeout: seconds that a GPU may be at work on what is decoded at once (0.05 on an
            H200, with the default buffer) before it counts as hanging, which is an error: a
            damaged page can keep it at work for ever. Waiting for files does not count. None for
            no limit, as in a debugger of GPU code.

    Raises:
        LoaderError: no files, unreadable files, missing columns, columns of which no type holds
            the values of all files, or arguments that make no sense. While reading: damaged files, and nulls in
            columns that are not of floats (a null float arrives as NaN), and a fork of the process
            that made the loader. In `model.fit`
            TensorFlow wraps errors while reading in a `tf.errors.InvalidArgumentError`.

    Keras remarks at every dataset that `fit`'s own `shuffle=True` has no effect on it;
    `model.fit(train, shuffle=False)` is silent and does the same.

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
        seed: int | None = None,
        on_bad_files: Literal["raise", "skip"] = "raise",
        decode_timeout: float | None = 10.0,
    ) -> None:
        expect_polars()
        check_choices(engine, on_bad_files)
        batch_size, parts_per_chunk = check_counts(
            batch_size=batch_size, parts_per_chunk=parts_per_chunk
        )
        unseeded = shuffle and seed is None and seed_fn is None
        share = make_share(global_size, global_rank, unseeded=unseeded)
        data = open_data(paths_or_dataset, schema)
        names = resolve_names(
            cat_names, cont_names, label_names, feature_columns or None, data.schema
        )
        source = data.describe(names, skip_bad=on_bad_files == "skip")
        widths = fixed_widths(sparse_names, sparse_max, data.schema)
        layout = make_layout(names, source.types, widths, sparse=not sparse_as_dense)
        where = open_device(device, data, source, layout, reader_kwargs, decode_timeout)
        settings = Settings(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=make_seed(seed, seed_fn),
            seed_fn=seed_fn,
            parts_per_chunk=parts_per_chunk,
            max_rows=rows_in_buffer(source, buffer_size, batch_size, where.budget),
            drop_last=drop_last,
            share=share,
        )
        self._skipped = source.skipped
        self.input_schema = batch_schema(layout, names, data.schema)
        transport: Transport = where.transport
        if widths and not sparse_as_dense:
            transport = SparseTransport(where.transport, layout)
        pieces = split_row_groups(source.row_groups, settings.max_rows)
        epochs = Epochs(pieces, where.source, settings, source.skipped, where.wait)
        self._own_pass: Iterator[Any] | None = None
        super().__init__(epochs, transport, where.name)

    @property
    def skipped_files(self) -> list[str]:
        """Files of which nothing, or not everything, could be read, with `on_bad_files="skip"`."""
        return [] if self._skipped is None else list(self._skipped.files)

    @property
    def batch_size(self) -> int:
        """Rows in a batch; an epoch's last may have fewer."""
        return self._epochs.settings.batch_size

    def close(self) -> None:
        """End what is being read in the background; iterators are at their end then.

        A `with` block does so at its end. Dropping an iterator ends its reading as well.
        """
        self._own_pass = None
        self._epochs.close()

    def __next__(self) -> Any:
        """The next batch of the loader's own pass, as `next(loader)`.

        The first call begins an epoch, as does the first after `close()` and after an epoch's end,
        which is a `StopIteration`. `iter(loader)` has nothing to do with it.

        Example:
            >>> x, y = next(train)  # doctest: +SKIP
        """
        if self._own_pass is None:
            self._own_pass = iter(self)
        try:
            return next(self._own_pass)
        except StopIteration:
            self._own_pass = None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek(self) -> Any:
        """The first batch of the next epoch, without taking it from there.

        Example:
            >>> x, y = train.peek()  # doctest: +SKIP
        """
        stream = self._epochs.first()
        try:
            return self._transport.to_batch(next(stream))
        finally:
            stream.close()

    def get_state(self) -> dict[str, Any]:
        """The position after the last batch handed out: JSON-able numbers.

        Of several iterators, the one begun last counts.

        Example:
            >>> state = train.get_state()  # doctest: +SKIP
            >>> KerasSequenceLoader(...).set_state(state)  # doctest: +SKIP
        """
        return self._epochs.get_state()

    def follow(self) -> Trail:
        """Trail that tells the state after any number of batches from here on, whoever reads ahead.

        Example:
            >>> state_after = train.follow()  # doctest: +SKIP
            >>> batches = iter(train.prefetch(8))  # doctest: +SKIP
            >>> next(batches), state_after(1)  # doctest: +SKIP
        """
        return self._epochs.follow()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Let the next epoch go on where `get_state` was called, with the identical batches.

        Row groups before that position are not read. The rest of the interrupted epoch is shorter
        than `len` says: `model.fit` remarks that the input ran out of data, counts one step more
        in the optimizer, and goes on with the next epoch. `LoaderCheckpoint` avoids both.

        The number of workers may be another one. All of them take the state of any one, and share
        what is left of the epoch anew, in other batches; each row still comes once in the epoch.

        Args:
            state: of a loader over the same files with the same settings.

        Raises:
            LoaderError: a state of other data or other settings.
        """
        self._epochs.set_state(state)
