"""`KerasSequenceLoader`: parquet straight into Keras."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from loader.arguments import check_choices, check_counts, make_share, rows_in_buffer
from loader.batch_iterator import BatchIterator
from loader.data import open_data
from loader.epochs import Epochs, Settings
from loader.generator_dataset import GeneratorFunctions, StreamRegistry
from loader.layout import batch_schema, make_layout, padded_widths, resolve_names
from loader.plan import split_row_groups
from loader.sized_dataset import SizedDataset
from loader.tensors import to_batch
from workflow.schema import Schema


class KerasSequenceLoader(SizedDataset):
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
    each `parts_per_chunk` consecutive row groups. Sorted data wants a larger `parts_per_chunk`.

    Args:
        paths_or_dataset: a parquet file, a folder, a glob pattern, a list of those, or a Polars
            DataFrame or LazyFrame (which is collected; use files for data larger than memory).
        batch_size: rows in a batch. Multiples of 64 are handed to TensorFlow without a copy.
        label_names: target columns. Default: those tagged as target in the schema; `[]`: none.
        feature_columns: `tf.feature_column` objects whose source columns are the features,
            instead of `cat_names` and `cont_names`.
        cat_names: categorical features, scalars or lists.
        cont_names: continuous features. Default for both: by the schema's tags.
        engine: "parquet" or None.
        shuffle: whether to shuffle.
        seed_fn: called at the start of each epoch for its seed, instead of `seed`.
        buffer_size: memory for decoded rows: a fraction of the machine's memory below 1, bytes
            from 1 on. Row groups too large for it are read in parts.
        device: "cpu" or None.
        parts_per_chunk: row groups whose rows are shuffled together, as far as the buffer allows.
        reader_kwargs: further arguments of `polars.scan_parquet`.
        global_size: number of workers that share the data.
        global_rank: this worker's number. All ranks take the same number of steps: where rows do
            not divide evenly, a rank that is one row short reads one of its rows twice.
        drop_last: leave a last batch out that is not full.
        sparse_names: list features to pad with 0 to dense tensors (N, max); a longer row is an
            error.
        sparse_max: the maximum for each of `sparse_names`.
        sparse_as_dense: must be True where `sparse_names` are given.
        schema: names and tags of the columns. Default: `schema.json` beside the first file.
        seed: for the order of rows. Default: a new one each time.
        on_bad_files: "error", or "skip" to leave out files whose footer cannot be read, which
            `skipped_files` then lists. Damage found later is always an error.

    Raises:
        LoaderError: no files, unreadable files, missing columns, columns that differ between
            files, or arguments that make no sense. While reading: damaged files, and nulls in
            columns that are not of floats (a null float arrives as NaN). In `model.fit`
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
        on_bad_files: Literal["error", "skip"] = "error",
    ) -> None:
        check_choices(engine, device, on_bad_files)
        check_counts(batch_size=batch_size, parts_per_chunk=parts_per_chunk)
        unseeded = shuffle and seed is None and seed_fn is None
        share = make_share(global_size, global_rank, unseeded=unseeded)
        data = open_data(paths_or_dataset, schema)
        names = resolve_names(cat_names, cont_names, label_names, feature_columns, data.schema)
        source = data.describe(names, skip_bad=on_bad_files == "skip")
        widths = padded_widths(sparse_names, sparse_max, sparse_as_dense)
        layout = make_layout(names, source.types, widths)
        settings = Settings(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=secrets.randbits(32) if seed is None else seed,
            seed_fn=seed_fn,
            parts_per_chunk=parts_per_chunk,
            max_rows=rows_in_buffer(source, buffer_size, batch_size),
            drop_last=drop_last,
            share=share,
        )
        self.skipped_files = source.skipped
        self.input_schema = batch_schema(layout, names, data.schema)
        self._layout = layout
        pieces = split_row_groups(source.row_groups, settings.max_rows)
        self._epochs = Epochs(pieces, data.reader(layout, reader_kwargs), layout, settings)
        self._generator = GeneratorFunctions(StreamRegistry(self._epochs.stream), layout)
        super().__init__(self._generator.dataset(), self._epochs.steps)

    @property
    def batch_size(self) -> int:
        """Rows in a batch; an epoch's last may have fewer."""
        return self._epochs.settings.batch_size

    def __iter__(self) -> BatchIterator:
        """One epoch, as an iterator over batches of eager tensors."""
        return BatchIterator(self, self._epochs.stream(), self._layout)

    def peek(self) -> Any:
        """The first batch of the next epoch, without taking it from there.

        Example:
            >>> x, y = train.peek()  # doctest: +SKIP
        """
        stream = self._epochs.first()
        try:
            return to_batch(self._layout, next(stream))
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

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Let the next epoch go on where `get_state` was called, with the identical batches.

        Row groups before that position are not read. The rest of the interrupted epoch is shorter
        than `len` says: `model.fit` remarks that the input ran out of data, and goes on with the
        next epoch.

        Args:
            state: of a loader over the same files with the same settings.

        Raises:
            LoaderError: a state of other data or other settings.
        """
        self._epochs.set_state(state)
