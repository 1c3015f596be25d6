"""Methods that the loaders of all frameworks have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

from loader.epochs import Epochs
from loader.errors import LoaderError
from loader.opening.open_loader import Opened
from loader.order.position import Trail
from workflow.schema.own_names import OwnNames
from workflow.schema.schema import Schema


class LoaderMethods(metaclass=OwnNames):
    """State, mixing and end of a loader; `iter` is the framework's own.

    Attributes:
        device: device of the batches: "cpu" or "gpu:0".
        input_schema: the columns of a batch.
        sample_weight: the column of the rows' weights; None without one.
    """

    device: str
    input_schema: Schema
    sample_weight: str | None
    _epochs: Epochs
    _transport: Any
    _own_pass: Iterator[Any] | None = None

    def _take(self, opened: Opened) -> None:
        self.device = opened.device.name
        self.input_schema = opened.schema
        self.sample_weight = next((column.name for column in opened.layout.weight), None)
        self._epochs = opened.epochs
        self._transport = opened.device.transport

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """One epoch of batches."""

    @property
    def skipped_files(self) -> list[str]:
        """Files of which nothing, or not everything, could be read, with `on_bad_files="skip"`."""
        skipped = self._epochs.skipped
        return [] if skipped is None else list(skipped.files)

    @property
    def batch_size(self) -> int:
        """Rows in a batch; an epoch's last batch may have fewer."""
        return self._epochs.settings.batch_size

    @property
    def global_size(self) -> int:
        """The number of workers that share the rows."""
        return self._epochs.settings.share.size

    @property
    def global_rank(self) -> int:
        """The number of this one among the workers that share the rows."""
        return self._epochs.settings.share.rank

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self._epochs.steps

    def close(self) -> None:
        """End all background reading; open iterators end.

        A `with` block calls it on exit. Dropping an iterator ends its reading as well.
        """
        self._own_pass = None
        self._epochs.close()

    def __next__(self) -> Any:
        """The next batch of the loader's own pass, for `next(loader)`.

        The first call begins an epoch, as does the first after `close()`, `set_state` and an epoch's
        end, which raises `StopIteration`. Iterators from `iter(loader)` are independent of it.

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

    def __reduce__(self) -> Any:
        """Refuse to be pickled, as for worker processes: threads and open files do not travel."""
        raise LoaderError(
            f"Expected a {type(self).__name__} to stay in the process that made it. Received: a "
            "pickle or a copy of it, as a DataLoader's worker processes and multiprocessing make. "
            "Pass num_workers=0, since threads read ahead; or make a loader in each process, with "
            "global_size and global_rank. Its position travels: get_state() and set_state(state)."
        )

    def __repr__(self) -> str:
        columns = ", ".join(self.input_schema.names[:5])
        more = len(self.input_schema) - 5
        return (
            f"{type(self).__name__}({len(self):,} batches of {self.batch_size:,} rows on "
            f"{self.device}: {columns}{f' and {more} more' if more > 0 else ''})"
        )

    def _repr_html_(self) -> str:
        head = f"{type(self).__name__}: {len(self):,} batches of {self.batch_size:,} rows"
        return f"<p>{head}, on {self.device}</p>{self.input_schema._repr_html_()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek(self) -> Any:
        """The first batch of the next epoch, without using the epoch up.

        Example:
            >>> x, y = train.peek()  # doctest: +SKIP
        """
        stream = self._epochs.first()
        try:
            return self._transport.to_batch(next(stream))
        finally:
            stream.close()

    def mixing(self) -> int:
        """The number of row groups from which a batch draws rows; 1 without `shuffle`.

        It is that of an epoch's first batch, which draws from the fewest if row groups have equal
        sizes. Row groups that have few rows for each batch may give none to some.

        Example:
            >>> train.mixing()  # doctest: +SKIP
            8
        """
        return self._epochs.mixing()

    def get_state(self) -> dict[str, Any]:
        """The position after the last batch handed out, as JSON-able numbers.

        With several iterators, the most recently begun one counts.

        Example:
            >>> state = train.get_state()  # doctest: +SKIP
            >>> make_loader().set_state(state)  # doctest: +SKIP
        """
        return self._epochs.get_state()

    def data_digest(self) -> str:
        """The number of rows and a checksum, in which other data differ; a copy has the same ones.

        The checksum is that of the files' footers, which state sizes and ranges of the values, and
        in files of `transform_to_parquet` their checksums; or of all values of a frame.
        `LoaderCheckpoint` compares it, so that a run resumes on its own data.

        Example:
            >>> train.data_digest()  # doctest: +SKIP
            '1,800,000 rows, 8f14e45f'
        """
        return self._epochs.digest()

    def follow(self) -> Trail:
        """Trail of the states after batches from here on, even if a consumer reads ahead.

        Example:
            >>> state_after = train.follow()  # doctest: +SKIP
            >>> batches = iter(train.prefetch(8))  # doctest: +SKIP
            >>> next(batches), state_after(1)  # doctest: +SKIP
        """
        return self._epochs.follow()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume the next epoch where `get_state` was called, with the identical batches.

        Row groups before that position are not read. The rest of the interrupted epoch is shorter
        than `len` says: `model.fit` warns that the input ran out of data, counts one step more in
        the optimizer, and continues with the next epoch. `LoaderCheckpoint` avoids both.

        The number of workers may change. All workers take the state of any one of them, and share
        the rest of the epoch anew, in other batches; each row still comes once in the epoch.

        Args:
            state: from a loader over the same files with the same settings.

        Raises:
            LoaderError: a state of other data or other settings.
        """
        self._epochs.set_state(state)
        self._own_pass = None
