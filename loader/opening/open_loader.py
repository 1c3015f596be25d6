"""Opening of a loader for any framework: from its arguments to its epochs."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from loader.batches.batches import BlockSource
from loader.batches.prefetch import Wait, wait_without_limit
from loader.batches.process import expect_polars
from loader.epochs import Epochs, Settings
from loader.files.layout import (
    BatchColumn,
    BatchLayout,
    batch_schema,
    fixed_widths,
    make_layout,
    resolve_names,
)
from loader.files.parquet_files import ReadableFiles
from loader.options import (
    Budget,
    check_choices,
    check_counts,
    check_flags,
    check_schema,
    check_timeout,
    make_seed,
    make_share,
    rows_in_buffer,
)
from loader.order.epoch_plan import split_row_groups
from loader.order.mixing import Room, plan_mixing
from loader.read.cpu_blocks import HostBlocks
from loader.read.source import FrameData, ParquetData, open_data
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import Schema
from workflow.schema.tags import fits_of

# Copies of a chunk at its largest: one being decoded, one decoded, its contiguous copy, one that is
# dealt, the rows gathered for a block, those gathered for the next one, a block waiting to be cut into
# batches, and one being cut. Row groups of objects that wait to be decoded are compressed,
# and do not count: the order of rows is that of local files.
_COPIES = 8
# Limits of a container's memory, of cgroups 2 and 1.
MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class BatchMaker(Protocol):
    """Transport of a stream's batches to whoever iterates over a loader."""

    def to_batch(self, batch: Any) -> Any:
        """A batch of the stream in its public structure, as tensors or arrays."""


@dataclass(frozen=True)
class OpenedDevice:
    """Parts of a loader that depend on the device.

    Attributes:
        name: "cpu" or "gpu:0".
        source: yields blocks of rows.
        transport: gives its batches to the framework.
        budget: the demands on its memory.
        wait: how to wait for `source`.
    """

    name: str
    source: BlockSource
    transport: Any
    budget: Budget
    wait: Wait = wait_without_limit


@dataclass(frozen=True)
class Data:
    """The opened data of a loader.

    Attributes:
        data: files, or a frame.
        source: its row groups.
        layout: the columns of a batch.
        reader_kwargs: the reader's options.
        decode_timeout: seconds after which a GPU that decodes counts as hanging; None for never.
    """

    data: ParquetData | FrameData
    source: ReadableFiles
    layout: BatchLayout
    reader_kwargs: Mapping[str, Any] | None
    decode_timeout: float | None


@dataclass(frozen=True)
class Opened:
    """The parts of a loader.

    Attributes:
        epochs: the data as epochs.
        device: where they are decoded.
        layout: the columns of a batch.
        schema: the same as a schema.
    """

    epochs: Epochs
    device: OpenedDevice
    layout: BatchLayout
    schema: Schema


def open_host(data: Data, transport: BatchMaker, *, only_reads: bool = False) -> OpenedDevice:
    """Open the CPU.

    Args:
        data: what is read.
        transport: gives its batches to the framework.
        only_reads: whether nobody writes to its batches, so that they may share a frame's memory.

    Raises:
        LoaderError: options that the reader does not accept.
    """
    reader = data.data.reader(data.layout, data.reader_kwargs, data.source)
    fetcher = data.source.fetcher
    # Objects' row groups are fetched whole. Where other rows stand in for a damaged row group, the
    # damage may be in the part that is read later.
    parts = fetcher is None and data.source.skipped is None
    borrows = isinstance(data.data, FrameData) and not only_reads
    blocks = HostBlocks(reader, data.layout, fetcher, reads_parts=parts, borrows=borrows)
    return OpenedDevice("cpu", blocks, transport, Budget(_host_memory(), _COPIES, place=4))


def _host_memory() -> int:
    """Bytes of memory that this process may take: those of the machine, or its container's limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file; "max" for no limit
            memory = min(memory, int(limit.read_text()))
    return memory


def arguments_in(constructor: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a loader's constructor that `open_loader` takes.

    Args:
        constructor: its `locals()` before it has variables of its own.
    """
    exclusions = {"self", "device", "__class__"}
    return {name: value for name, value in constructor.items() if name not in exclusions}


def open_loader(  # noqa: D417 - the others are those of KerasSequenceLoader
    open_device: Callable[[Data], OpenedDevice],
    current_worker: Callable[[], tuple[int, int] | None],
    *,
    paths_or_dataset: Any,
    batch_size: int,
    label_names: Sequence[str] | None,
    sample_weight: str | None,
    feature_columns: Sequence[Any] | None,
    cat_names: Sequence[str] | None,
    cont_names: Sequence[str] | None,
    engine: str | None,
    shuffle: bool,
    seed_fn: Callable[[], int] | None,
    buffer_size: float,
    parts_per_chunk: int,
    reader_kwargs: Mapping[str, Any] | None,
    global_size: int | None,
    global_rank: int | None,
    drop_last: bool,
    sparse_names: Sequence[str] | None,
    sparse_max: Mapping[str, int] | None,
    sparse_as_dense: bool,
    schema: Schema | None,
    seed: int | None,
    on_bad_files: str,
    decode_timeout: float | None,
    storage_options: Mapping[str, Any] | None,
) -> Opened:
    """Check a loader's arguments, which are those of `KerasSequenceLoader`, and open its data.

    Args:
        open_device: opens the device.
        current_worker: the number of workers and this one's number, if the framework knows them.

    Raises:
        LoaderError: see there.
    """
    expect_polars()
    check_choices(engine, on_bad_files)
    check_timeout(decode_timeout)
    check_flags(shuffle=shuffle, drop_last=drop_last, sparse_as_dense=sparse_as_dense)
    check_schema(schema)
    batch_size, parts_per_chunk = check_counts(
        batch_size=batch_size, parts_per_chunk=parts_per_chunk
    )
    unseeded = shuffle and seed is None and seed_fn is None
    share = make_share(global_size, global_rank, current_worker, unseeded=unseeded)
    data = open_data(paths_or_dataset, schema, storage_options)
    columns = feature_columns or None
    names = resolve_names(cat_names, cont_names, label_names, sample_weight, columns, data.schema)
    source = data.describe(names, skip_bad=on_bad_files == "skip")
    widths = fixed_widths(sparse_names, sparse_max, data.schema)
    layout = make_layout(names, source.types, widths, sparse=not sparse_as_dense)
    device = open_device(Data(data, source, layout, reader_kwargs, decode_timeout))
    padding = sum(map(_padded_bytes, layout.columns))
    max_rows = rows_in_buffer(source, buffer_size, batch_size, device.budget, padding)
    room = Room(
        max_rows=max_rows,
        copies=device.budget.copies,
        # From more than half of all row groups, each batch draws from all.
        row_groups=max(
            min(parts_per_chunk, len(source.row_groups) // 2 + 1), device.source.row_groups_mixed
        ),
        batch_size=batch_size,
        most_parts=device.source.most_parts,
    )
    row_groups = source.row_groups
    most = room.piece_rows([group.rows for group in row_groups]) if shuffle else max_rows
    pieces = split_row_groups(row_groups, most)
    settings = Settings(
        batch_size=batch_size,
        shuffle=shuffle,
        seed=make_seed(seed, seed_fn),
        seed_fn=seed_fn,
        mixing=plan_mixing(pieces, room, device.source.pieces_per_chunk),
        max_rows=max_rows,
        drop_last=drop_last,
        share=share,
    )
    digest = functools.cache(lambda: data.digest(source))
    schema = batch_schema(layout, names, data.schema)
    fits = fits_of(schema.columns)
    epochs = Epochs(pieces, device.source, settings, source.skipped, device.wait, digest, fits)
    return Opened(epochs, device, layout, schema)


def _padded_bytes(column: BatchColumn) -> int:
    """Bytes that a row of a padded column takes; 0 for other columns."""
    itemsize = DTYPES[column.type.dtype].numpy.itemsize
    return (column.width or 0) * itemsize if column.is_padded else 0
