"""Transformed data as parquet files with their schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl

from workflow.data.checksums import add_checksums
from workflow.data.objects import expect_utf8
from workflow.engine.engine import rows_on_gpu
from workflow.errors import WorkflowError
from workflow.expressions.cudf.rows_on_gpu import Gpu, RowsOnGpu
from workflow.files.durable import sync
from workflow.files.write_errors import write_errors
from workflow.progress.stage import advance
from workflow.schema.python_number import make_fields_plain
from workflow.schema.schema import Schema

from .dataset_run import DatasetRun, run_into
from .pieces_in_order import in_order
from .shuffle import shuffled

# Small enough that a shuffle mixes well, large enough to amortise the overhead of decoding.
ROW_GROUP_ROWS = 250_000
# Rows of a query on the GPU: two queries, with intermediate results, take some 4 GB there.
ROWS_ON_GPU = 4_000_000

# Files from a GPU whose checksums are added, and for which the disk is awaited, at a time.
FINISHED_AT_ONCE = 3

Compression = Literal["snappy", "zstd", "lz4", "uncompressed"]


@dataclass(frozen=True)
class ParquetSink:
    """Settings of the files for transformed rows.

    Attributes:
        folder: folder of the files; made if missing, and it must not contain parquet.
        rows_per_file: the rows of a file; the last one may have fewer.
        compression: "snappy", "zstd", "lz4" or "uncompressed".
        seed: seed of the shuffle; None keeps the rows in order.
        once_held: called when no other run can write into the folder, before a file is published.

    Raises:
        WorkflowError: a setting is invalid.
    """

    folder: Path
    rows_per_file: int
    compression: str
    seed: int | None = None
    once_held: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        make_fields_plain(self)
        expect_utf8(self.folder)
        if type(self.rows_per_file) is not int or self.rows_per_file < 1:
            raise WorkflowError(f"Expected rows_per_file from 1. Received: {self.rows_per_file!r}.")
        if self.compression not in ("snappy", "zstd", "lz4", "uncompressed"):
            raise WorkflowError(
                'Expected the compression "snappy", "zstd", "lz4" or "uncompressed". '
                f"Received: {self.compression!r}."
            )
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise WorkflowError(f"Expected a seed from 0. Received: {self.seed!r}.")

    def expect_outside(self, data: Any) -> None:
        """Refuse a folder inside the data, which would later be read with the data.

        Args:
            data: any data that `Workflow.fit` takes.

        Raises:
            WorkflowError: it lies inside a folder of the data.
        """
        for path in data if isinstance(data, list | tuple) else [data]:
            if not isinstance(path, str | os.PathLike) or not Path(path).is_dir():
                continue
            if self.folder.resolve().is_relative_to(Path(path).resolve()):
                raise inside_error(path, self.folder)

    def write(self, frames: Iterable[pl.DataFrame], schema: Schema) -> list[Path]:
        """Write `part-00000.parquet` and so on, and `_schema.json`.

        Args:
            frames: at least one, rows in order; two files' rows are in memory at a time.
            schema: schema of the frames.

        Raises:
            WorkflowError: the folder holds parquet already, or another run writes to it.
        """
        with self._run() as run:
            return run.publish(self._write_in_order(_counted(frames), run.scratch), schema)

    def write_with(self, write: Callable[[Path], list[Path]], schema: Schema) -> list[Path]:
        """Write files that a cluster's workers or a GPU make, in the order of their rows.

        Args:
            write: writes files of `rows_per_file` rows into a folder, as `write_frames` does.
            schema: schema of the files.

        Raises:
            WorkflowError: the folder holds parquet already, or another run writes to it.
        """
        with self._run() as run:
            paths = write(run.scratch)
            if self.seed is not None:
                # The same rows in the same frames as on one machine give the same order.
                ordered = run.scratch / "ordered"
                ordered.mkdir()
                paths = [path.rename(ordered / path.name) for path in paths]
                paths = self._write_in_order(
                    map(partial(pl.read_parquet, glob=False), paths), run.scratch
                )
            return run.publish(paths, schema)

    def write_frames(
        self, frames: Iterable[pl.DataFrame], folder: Path, first: int = 0
    ) -> list[Path]:
        """Write a file for each frame; one is written while the rows of the next are computed.

        Args:
            frames: of `rows_per_file` rows each, the last one of the remainder.
            folder: where the files are written.
            first: the number of the first file.
        """

        def write(numbered: tuple[int, pl.DataFrame]) -> Path:
            number, frame = numbered
            return self.write_file(frame, folder, number)

        return list(in_order(write, enumerate(frames, first), 1))

    def write_file(self, frame: pl.DataFrame, folder: Path, number: int) -> Path:
        """Write the rows of one file, given its number."""
        path = folder / f"part-{number:05}.parquet"
        compression = cast("Compression", self.compression)
        with write_errors(f"parquet to {self.folder}"):
            frame.write_parquet(path, compression=compression, row_group_size=ROW_GROUP_ROWS)
            add_checksums(path)
        return path

    def write_pieces(
        self, pieces: Iterable[Callable[[Gpu], RowsOnGpu]], folder: Path, first: int = 0
    ) -> list[Path]:
        """Write rows that are computed on the GPU, which also encodes the files.

        Args:
            pieces: in order; each makes `rows_per_query` rows, the last one the remainder.
            folder: where the files are written.
            first: the number of the first file.
        """
        paths: list[Path] = []
        finished: list[Future[None]] = []
        numbers = count(first, self._files_per_query)
        with (
            rows_on_gpu() as gpu,
            ThreadPoolExecutor(FINISHED_AT_ONCE) as pool,
            # One piece's files are written while the next piece is computed. Two that are computed at a
            # time would take longer: each operation of cuDF waits for Python's lock.
            closing(in_order(lambda make: make(gpu), pieces, 1)) as results,
        ):
            for new_paths in map(partial(self._write_piece, folder), numbers, results):
                paths += new_paths
                finished += [pool.submit(self._finish, path) for path in new_paths]
                advance(self.rows_per_query)
            for file in finished:
                file.result()
        return paths

    @contextmanager
    def _run(self) -> Iterator[DatasetRun]:
        with run_into(self.folder) as run:
            if self.once_held is not None:
                self.once_held()
            yield run

    @property
    def may_write_on_gpu(self) -> bool:
        """Whether `write_pieces` supports the settings: rows in order, and not zstd.

        cuDF 26.10 encoding zstd in several threads once ended in a launch failure, after which a
        process can no longer use its GPU.
        """
        return self.seed is None and self.compression != "zstd"

    @property
    def rows_per_query(self) -> int:
        """Rows of several whole files, so that the startup time of a query matters little."""
        return self._files_per_query * self.rows_per_file

    @property
    def _files_per_query(self) -> int:
        return max(1, ROWS_ON_GPU // self.rows_per_file)

    def _write_in_order(self, frames: Iterable[pl.DataFrame], scratch: Path) -> list[Path]:
        files = cut(frames, self.rows_per_file)
        if self.seed is not None:
            files = cut(shuffled(files, scratch, self.seed), self.rows_per_file)
        return self.write_frames(files, scratch)

    def _write_piece(self, folder: Path, first: int, rows: RowsOnGpu) -> list[Path]:
        files = max(1, -(-rows.height // self.rows_per_file))
        paths = [folder / f"part-{first + n:05}.parquet" for n in range(files)]
        with write_errors(f"parquet to {self.folder}"):
            rows.write_parquet(paths, self.rows_per_file, self.compression, ROW_GROUP_ROWS)
        return paths

    def _finish(self, path: Path) -> None:
        """Add checksums, and begin to wait for the disk while the next files are computed."""
        with write_errors(f"parquet to {self.folder}"):
            add_checksums(path)
            sync(path)


def _counted(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same frames, whose rows advance the stage that is under way."""
    for frame in frames:
        advance(frame.height)
        yield frame


def cut(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows in frames of exactly `rows` rows, the last one with the remainder.

    Example:
        >>> [frame.height for frame in cut([pl.DataFrame({"a": range(5)})], rows=2)]
        [2, 2, 1]
    """
    waiting: list[pl.DataFrame] = []
    count = 0
    for frame in frames:
        waiting.append(frame)
        count += frame.height
        while count > rows:
            whole = pl.concat(waiting)
            yield whole[:rows]
            waiting, count = [whole[rows:]], count - rows
    yield pl.concat(waiting)


def inside_error(data: Any, folder: Any) -> WorkflowError:
    """The error for results that would later be read with their data."""
    return WorkflowError(
        f"Expected a folder outside of the data, which is {str(data)!r} with all folders "
        f"inside. Received: {folder}. Write beside it, or name the data by a "
        "pattern such as folder/*.parquet."
    )
