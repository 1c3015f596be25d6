"""Rows that stay on the GPU, between parquet and queries, or between a query and its files.

Polars' own way to cuDF decodes the files for each query, returns every result to the host, and
writes one file a query, copying the vocabularies to the GPU each time. Here many queries share data
that was decoded once, and one query makes the rows of several files. This is the only module that
uses internals of cudf-polars, which the package's requirements pin to 26.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

# Files that are encoded and written at a time. One alone would mostly wait for the disk.
WRITERS = 4
IO_THREADS = 8


class RowsOnGpu:
    """Result of a query, in GPU memory.

    Args:
        query: a query that cuDF can run.
        engine: the engine that runs it, in Polars' form.

    Attributes:
        height: the number of rows.

    Raises:
        NotImplementedError: cuDF cannot run the query.
    """

    def __init__(self, query: pl.LazyFrame, engine: pl.GPUEngine) -> None:
        from cudf_polars.dsl.ir import IRExecutionContext  # noqa: PLC0415 - the extra [gpu]
        from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

        plan = translated(query, engine)
        self._schema = query.collect_schema()
        # One for each query and each file, so that they do not wait for each other.
        stream = Stream()
        context = IRExecutionContext(get_cuda_stream=lambda: stream)
        self._frame = plan.evaluate(cache={}, timer=None, context=context)
        stream.synchronize()
        self.height: int = self._frame.num_rows

    def lazy(self) -> pl.LazyFrame:
        """The rows for further queries on the GPU, which read them in place."""
        frame = self._frame

        def read(names: list[str] | None, *_: Any) -> Iterator[Any]:
            # cuDF itself applies the filters that Polars leaves to the source.
            yield frame if names is None else frame.select(names)

        return register_io_source(read, schema=self._schema)

    def write_parquet(
        self, paths: list[Path], rows_per_file: int, compression: str, row_group_rows: int
    ) -> None:
        """Write all rows, a fixed number to each file and the remainder to the last one."""
        ends = [min(n * rows_per_file, self.height) for n in range(1, len(paths) + 1)]
        starts = [0, *ends[:-1]]
        with ThreadPoolExecutor(WRITERS) as pool:
            jobs = [
                pool.submit(self._write, path, start, end, compression, row_group_rows)
                for path, start, end in zip(paths, starts, ends, strict=True)
            ]
            for job in jobs:
                job.result()

    def _write(self, path: Path, start: int, end: int, compression: str, rows: int) -> None:
        import pylibcudf as plc  # noqa: PLC0415
        from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

        stream = Stream()
        (table,) = plc.copying.slice(self._frame.table, [start, end], stream=stream)
        codec = {"uncompressed": "NONE"}.get(compression, compression.upper())
        options = (
            plc.io.parquet.ParquetWriterOptions.builder(plc.io.SinkInfo([str(path)]), table)
            .metadata(self._metadata(table))
            .compression(plc.io.types.CompressionType[codec])
            .row_group_size_rows(rows)
            .build()
        )
        plc.io.parquet.write_parquet(options, stream=stream)

    def _metadata(self, table: Any) -> Any:
        """Metadata with names, and all columns nullable, whether or not these rows contain nulls."""
        import pylibcudf as plc  # noqa: PLC0415

        metadata = plc.io.types.TableInputMetadata(table)
        for number, column in enumerate(self._frame.columns):
            named = metadata.column_metadata[number].set_name(column.name).set_nullability(True)
            if isinstance(column.dtype.polars_type, pl.List):
                named.child(1).set_nullability(True)
        return metadata


def translated(query: pl.LazyFrame, engine: pl.GPUEngine) -> Any:
    """A query as a plan of cuDF.

    Raises:
        NotImplementedError: cuDF cannot run it; the message says why.
    """
    from cudf_polars.dsl.translate import Translator  # noqa: PLC0415

    translator = Translator(query._ldf.visit(), engine)  # noqa: SLF001 - as cudf-polars does
    plan = translator.translate_ir()
    if (error := translator.unsupported_operations_error()) is not None:
        raise error
    return plan


@cache
def device_memory() -> Any:
    """The memory pool of cuDF: the driver's, whose unused memory it keeps."""
    import rmm.mr  # noqa: PLC0415

    return rmm.mr.CudaAsyncMemoryResource()


@contextmanager
def gpu_settings(resource: Any) -> Iterator[None]:
    """Set cuDF's memory resource and file settings inside the block, in every thread.

    Args:
        resource: a memory resource of rmm.
    """
    import kvikio.defaults  # noqa: PLC0415
    import rmm.mr  # noqa: PLC0415

    before = rmm.mr.get_current_device_resource()
    rmm.mr.set_current_device_resource(resource)
    try:
        # Through the page cache, like ordinary writes: without it a file waits for the disk.
        with kvikio.defaults.set({"auto_direct_io_write": False, "num_threads": IO_THREADS}):
            yield
    finally:
        rmm.mr.set_current_device_resource(before)
