"""Rows that stay on the GPU, between parquet and queries, or between a query and its files.

Polars' own way to cuDF decodes the files for each query, returns every result to the host, and
writes one file a query, copying the vocabularies to the GPU each time. Here many queries share data
that was decoded once, one query makes the rows of several files, and lists, with which cuDF's
engine cannot compute, become columns of their elements without leaving the GPU. This is the only
module that uses internals of cudf-polars, which the package's requirements pin to 26.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from ctypes import CDLL, byref, c_int, c_void_p
from functools import cache
from pathlib import Path
from threading import Thread, local
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from workflow.errors import WorkflowError

# Files that are encoded and written at a time. One alone would mostly wait for the disk.
WRITERS = 4
IO_THREADS = 8
STREAMS = 32


class Gpu:
    """The GPU as the place where queries run and their results stay.

    Args:
        engine: the engine that runs them, in Polars' form.
    """

    def __init__(self, engine: pl.GPUEngine) -> None:
        self._engine = engine

    def hold(self, query: pl.LazyFrame) -> RowsOnGpu:
        """The result of a query.

        Raises:
            WorkflowError: cuDF cannot run the query.
        """
        return _result(translated(query, self._engine))

    def prepare(
        self, query: Callable[[pl.LazyFrame], pl.LazyFrame], schema: Mapping[str, pl.DataType]
    ) -> PreparedQuery:
        """A query that runs many times, each time over other rows.

        Args:
            query: makes the query from a frame of the rows.
            schema: the types of the rows.

        Raises:
            WorkflowError: cuDF cannot run the query.
        """
        slot = local()
        rows = register_io_source(lambda names, *_: _read(slot.frame, names), schema=dict(schema))
        plan = translated(query(rows), self._engine)
        send_tables(plan)
        return PreparedQuery(plan, slot)

    def send(self, frame: pl.DataFrame) -> RowsOnGpu:
        """A copy of rows from the host's memory."""
        from cudf_polars.containers import DataFrame  # noqa: PLC0415

        stream = new_stream()
        sent = DataFrame.from_polars(frame, stream)
        stream.synchronize()
        return RowsOnGpu(sent)

    def together(self, parts: Mapping[str, RowsOnGpu]) -> RowsOnGpu:
        """Rows of single columns, by their new names."""
        from cudf_polars.containers import DataFrame  # noqa: PLC0415

        columns = {name: rows.frame.columns[0] for name, rows in parts.items()}
        named_columns = [_named(c.obj, c.dtype.polars_type, name) for name, c in columns.items()]
        return RowsOnGpu(DataFrame(named_columns, next(iter(parts.values())).frame.stream))


class PreparedQuery:
    """A query over rows on the GPU, translated once: that takes as long as a third of its work.

    Args:
        plan: the query for cuDF, which reads the rows from `given`, with its tables on the GPU.
        given: the rows of the run that is under way in each thread.
    """

    def __init__(self, plan: Any, given: local) -> None:
        self._plan, self._given = plan, given

    def run(self, rows: RowsOnGpu) -> RowsOnGpu:
        """The result for some rows; several threads may each run it."""
        self._given.frame = rows.frame
        try:
            return _result(self._plan)
        finally:
            del self._given.frame


class RowsOnGpu:
    """Columns in GPU memory.

    Args:
        frame: the columns, in cudf-polars' form, complete: nothing that makes them is under way.

    Attributes:
        frame: as above.
        schema: their types.
        height: the number of rows.
    """

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.schema: dict[str, pl.DataType] = {
            column.name: column.dtype.polars_type for column in frame.columns
        }
        self.height: int = frame.num_rows

    def lazy(self) -> pl.LazyFrame:
        """The rows for further queries on the GPU, which read them in place."""
        frame = self.frame
        return register_io_source(lambda names, *_: _read(frame, names), schema=self.schema)

    def to_host(self) -> pl.DataFrame:
        """A copy of the rows in the host's memory."""
        rows: pl.DataFrame = self.frame.to_polars()
        return rows

    def columns(self) -> dict[str, RowsOnGpu]:
        """Each column alone, by its name."""
        return {column.name: self._with([column]) for column in self.frame.columns}

    def elements(self, name: str) -> RowsOnGpu:
        """The elements of the only column, which has lists and no null, as a column."""
        (lists,) = self.frame.columns
        _, elements = _parts(lists.obj)
        return self._with([_named(elements, lists.dtype.polars_type.inner, name)])

    def in_lists(self, lists: RowsOnGpu) -> RowsOnGpu:
        """The columns as lists as long as those of another column, which has no null."""
        import pylibcudf as plc  # noqa: PLC0415

        offsets, _ = _parts(lists.frame.columns[0].obj)
        kind = plc.DataType(plc.TypeId.LIST)
        columns = [
            _named(
                plc.Column(kind, lists.height, None, None, 0, 0, [offsets, column.obj]),
                pl.List(column.dtype.polars_type),
                column.name,
            )
            for column in self.frame.columns
        ]
        return self._with(columns)

    def repeated(self, lists: RowsOnGpu) -> RowsOnGpu:
        """Each row as often as the row of another column, which has lists and no null, has elements."""
        import pylibcudf as plc  # noqa: PLC0415

        stream = new_stream()
        counts = plc.lists.count_elements(lists.frame.columns[0].obj, stream)
        table = plc.filling.repeat(self.frame.table, counts, stream)
        stream.synchronize()
        of = zip(self.frame.columns, table.columns(), strict=True)
        return self._with([_named(made, c.dtype.polars_type, c.name) for c, made in of])

    def with_empty_lists(self) -> RowsOnGpu:
        """The same columns, which have lists, with an empty list for each null."""
        import pylibcudf as plc  # noqa: PLC0415

        if not any(column.obj.null_count() for column in self.frame.columns):
            return self
        stream = new_stream()
        first, step = (plc.Scalar.from_py(n, plc.types.SIZE_TYPE, stream) for n in (0, 1))
        every = plc.filling.sequence(self.height, first, step, stream)
        # In what cuDF gathers a null list has no elements, and only the mask makes it null.
        unchecked = plc.copying.OutOfBoundsPolicy.DONT_CHECK
        gathered = plc.copying.gather(self.frame.table, every, unchecked, stream)
        stream.synchronize()
        plain = (column.with_mask(None, 0) for column in gathered.columns())
        of = zip(self.frame.columns, plain, strict=True)
        return self._with([_named(lists, c.dtype.polars_type, c.name) for c, lists in of])

    def _with(self, columns: Sequence[Any]) -> RowsOnGpu:
        from cudf_polars.containers import DataFrame  # noqa: PLC0415

        return RowsOnGpu(DataFrame(columns, self.frame.stream))

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

        stream = new_stream()
        (table,) = plc.copying.slice(self.frame.table, [start, end], stream=stream)
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
        for number, column in enumerate(self.frame.columns):
            named = metadata.column_metadata[number].set_name(column.name).set_nullability(True)
            if isinstance(column.dtype.polars_type, pl.List):
                named.child(1).set_nullability(True)
        return metadata


def _read(frame: Any, names: list[str] | None) -> Iterator[Any]:
    """Some columns of rows; cuDF itself applies the filters that Polars leaves to a source.

    A query runs on the stream of the rows that it reads: on one of its own it waits for no other.
    """
    from cudf_polars.containers import DataFrame  # noqa: PLC0415

    rows = frame if names is None else frame.select(names)
    yield DataFrame(rows.columns, new_stream(), num_rows=rows.num_rows)


def _result(plan: Any) -> RowsOnGpu:
    """The result of a plan of cuDF."""
    from cudf_polars.dsl.ir import IRExecutionContext  # noqa: PLC0415 - the extra [gpu]

    stream = new_stream()
    context = IRExecutionContext(get_cuda_stream=lambda: stream)
    frame = plan.evaluate(cache={}, timer=None, context=context)
    frame.stream.synchronize()  # of a query over rows on the GPU it is not the one above
    return RowsOnGpu(frame)


def _named(column: Any, dtype: pl.DataType, name: str) -> Any:
    """A column of pylibcudf as one of cudf-polars."""
    from cudf_polars.containers import Column, DataType  # noqa: PLC0415

    return Column(column, DataType(dtype), name=name)


def _parts(lists: Any) -> tuple[Any, Any]:
    """The offsets and the elements of lists, of all of a column and of nothing else."""
    offsets, elements = lists.children()
    if lists.offset() or offsets.size() != lists.size() + 1:  # a part of a longer column
        stream = new_stream()
        offsets, elements = lists.copy(stream).children()
        stream.synchronize()
    return offsets, elements


def new_stream() -> Any:
    """A CUDA stream, another one for each query and each file, so that few wait for each other."""
    return _streams().get_stream()


@cache
def _streams() -> Any:
    """Streams that live as long as the process.

    Memory is given back on the stream on which it was taken, and pylibcudf does not keep the stream
    of what it copies from the host: with a stream that ended before, the process would crash.
    """
    from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool  # noqa: PLC0415

    return CudaStreamPool(STREAMS)


def translated(query: pl.LazyFrame, engine: pl.GPUEngine) -> Any:
    """A query as a plan of cuDF.

    Raises:
        WorkflowError: cuDF cannot run it; the message says why.
    """
    from cudf_polars.dsl.translate import Translator  # noqa: PLC0415

    translator = Translator(query._ldf.visit(), engine)  # noqa: SLF001 - as cudf-polars does
    plan = translator.translate_ir()
    if (error := translator.unsupported_operations_error()) is not None:
        raise _not_on_gpu(error) from error
    return plan


def send_tables(plan: Any) -> None:
    """Copy the tables of a plan to the GPU, where cuDF's engine would copy them for each run."""
    import pylibcudf as plc  # noqa: PLC0415
    from cudf_polars.dsl.traversal import traversal  # noqa: PLC0415

    stream, on_gpu = new_stream(), _table_on_gpu()
    for node in traversal([plan]):
        named = getattr(node, "exprs", getattr(node, "columns", ()))  # selected, or added
        for expression in traversal([column.value for column in named]):
            if type(expression) is on_gpu.__base__:
                expression.value = plc.Column.from_arrow(expression.value, stream=stream)
                expression.__class__ = on_gpu
    stream.synchronize()


@cache
def _table_on_gpu() -> Any:
    """The class of a table in a plan whose value is a column on the GPU."""
    from cudf_polars.containers import Column  # noqa: PLC0415
    from cudf_polars.dsl.expressions.literal import LiteralColumn  # noqa: PLC0415

    def do_evaluate(self: Any, *_: Any, **__: Any) -> Any:
        return Column(self.value, dtype=self.dtype)

    members = {"__slots__": (), "do_evaluate": do_evaluate}
    return type("TableOnGpu", (LiteralColumn,), members)


def _not_on_gpu(error: NotImplementedError) -> WorkflowError:
    """The error for a query with steps that cuDF cannot run, as cudf-polars reports them."""
    reasons = dict.fromkeys(str(reason) for reason in error.args[-1]) if error.args[1:] else [error]
    return WorkflowError(
        f'cuDF cannot run a step of this: {", ".join(map(str, reasons))}. Pass engine="cpu". '
        "Lists of floats as ids are such a step: cast them to pl.List(pl.Int64) before."
    )


@cache
def device_memory() -> Any:
    """The memory pool of cuDF: the driver's, whose unused memory it keeps.

    The first call connects to the GPU while it imports cuDF: each takes half a second on an H100's host.
    """
    Thread(target=_connect, daemon=True).start()
    import rmm.mr  # noqa: PLC0415

    return rmm.mr.CudaAsyncMemoryResource()


def _connect() -> None:
    """Make the driver's context of the first GPU, the one that cuDF then takes."""
    with suppress(OSError):  # without a driver; cuDF says so
        driver, device, context = CDLL("libcuda.so.1"), c_int(), c_void_p()
        driver.cuInit(0)
        driver.cuDeviceGet(byref(device), 0)
        driver.cuDevicePrimaryCtxRetain(byref(context), device)


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
