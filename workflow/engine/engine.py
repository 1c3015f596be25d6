"""Engines on which programs and queries run: the CPU, or the GPU through cuDF."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import polars as pl

from workflow.errors import WorkflowError
from workflow.expressions.cudf.exceptions import VERBS_ON_GPU, is_one_query
from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.cudf.rows_on_gpu import Gpu, device_memory, gpu_settings
from workflow.expressions.polars.interpreter import VERBS
from workflow.expressions.polars.stages import apply, compile_stages, free_name, run_stages
from workflow.expressions.program.program import Program
from workflow.first_use import install_command
from workflow.progress.stage import queried

# Queries in one pass over the data; the scan keeps rows that it has read ahead for each.
QUERIES_AT_ONCE = 8
# Polars 1.44 loses the order of rows where all outputs choose between constants.
IN_ORDER = pl.QueryOptFlags(check_order_observe=False)


def is_gpu(engine: str) -> bool:
    """Whether an engine runs on the GPU.

    Raises:
        WorkflowError: it is not "auto", "cpu" or "gpu", or it is "gpu" and cuDF is not installed.
    """
    if engine not in ("auto", "cpu", "gpu"):
        raise WorkflowError(f'Expected the engine "auto", "cpu" or "gpu". Received: {engine!r}.')
    if engine == "gpu" and find_spec("cudf_polars") is None:
        raise WorkflowError(
            f'The engine "gpu" needs cuDF, and an environment without [serve]: {install_command("gpu")}. '
            "Received: an environment without the package cudf_polars. On this machine's CPU the "
            'engine is "cpu".'
        )
    return engine == "gpu"


def collect_all(queries: Sequence[pl.LazyFrame], engine: str) -> list[pl.DataFrame]:
    """Run queries over data of any size, several in one scan.

    Args:
        queries: queries whose results fit into memory.
        engine: "auto", "cpu" or "gpu"; a query that cannot run on the GPU is an error, never a
            fallback.

    Raises:
        WorkflowError: the engine is unknown.
    """
    if is_gpu(engine):
        # cuDF takes one query at a time; each reads only its own columns.
        batches = [[query] for query in queries]
    else:
        starts = range(0, len(queries), QUERIES_AT_ONCE)
        batches = [list(queries[start : start + QUERIES_AT_ONCE]) for start in starts]
    frames: list[pl.DataFrame] = []
    for batch in batches:
        frames += (
            [collect_on_gpu(batch[0])]
            if is_gpu(engine)
            else pl.collect_all(batch, engine="streaming")
        )
        queried(len(batch))
    return frames


def in_batches(query: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
    """The rows of a query in their order, `rows` at a time and the remainder; none of no rows.

    Polars streams it, reading up to a hundred row groups ahead.
    """
    yield from query.collect_batches(
        chunk_size=rows, lazy=True, engine="streaming", optimizations=IN_ORDER
    )


def collect_on_gpu(query: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over data that fits into the GPU's memory."""
    return query.collect(engine=gpu_engine())


def brought_to_host(query: pl.LazyFrame, engine: str) -> pl.LazyFrame:
    """Result of a query, for further work on the CPU: in memory, if the GPU made it."""
    return collect_on_gpu(query).lazy() if is_gpu(engine) else query


def gpu_engine() -> pl.GPUEngine:
    """The GPU as Polars' engine; a query that it cannot run is an error, never a fallback."""
    return pl.GPUEngine(executor="in-memory", raise_on_fail=True, memory_resource=device_memory())


@contextmanager
def rows_on_gpu() -> Iterator[Gpu]:
    """The GPU, as the place where the results of queries stay."""
    engine = gpu_engine()
    with gpu_settings(engine.memory_resource):
        yield Gpu(engine)


def held_on_gpu(query: pl.LazyFrame, engine: str) -> pl.LazyFrame:
    """Result of a query, for many queries: in GPU memory, if they run on the GPU."""
    if not is_gpu(engine):
        return query
    with rows_on_gpu() as gpu:
        return gpu.hold(query).lazy()


def run_program(
    frame: pl.LazyFrame, program: Program, engine: str, *, hold: bool = False
) -> pl.LazyFrame:
    """A program's outputs, lazily; on the GPU in memory if one query cannot compute them.

    Args:
        frame: the program's inputs.
        program: the program to run on each row.
        engine: "auto", "cpu" or "gpu".
        hold: whether that is the GPU's memory, which only queries on the GPU can read.
    """
    if not is_gpu(engine):
        return apply(frame, program)
    if is_one_query(program):
        return run_stages(frame, compile_stages(program, VERBS_ON_GPU))
    if not hold:
        return gpu_runner(program)(frame).lazy()
    with rows_on_gpu() as gpu:
        return host_and_engine(program)(frame, gpu).lazy()


def gpu_runner(program: Program) -> Callable[[pl.LazyFrame], pl.DataFrame]:
    """A function from a frame of a program's inputs to its outputs, computed on the GPU."""
    run = host_and_engine(program)

    def run_on_gpu(frame: pl.LazyFrame) -> pl.DataFrame:
        with rows_on_gpu() as gpu:
            return run(frame, gpu).to_host()

    return run_on_gpu


def filter_rows(
    frame: pl.LazyFrame, condition: Program, engine: str, columns: Sequence[str] = ()
) -> pl.LazyFrame:
    """The rows for which a condition holds, lazily.

    Args:
        frame: the condition's inputs, and further columns.
        condition: a program of one output, a bool.
        engine: "auto", "cpu" or "gpu".
        columns: as in `with_outputs`.
    """
    beside, (name,) = with_outputs(frame, condition, engine, columns)
    return beside.filter(pl.col(name)).drop(name)


def with_outputs(
    frame: pl.LazyFrame, program: Program, engine: str, columns: Sequence[str] = ()
) -> tuple[pl.LazyFrame, list[str]]:
    """A frame with a program's outputs beside its columns, lazily.

    On the GPU the frame is in memory if one query cannot compute the outputs.

    Args:
        frame: the program's inputs, and further columns.
        program: the program to run on each row.
        engine: "auto", "cpu" or "gpu".
        columns: the frame's columns, which Polars finds slowly behind many steps; none if they are
            unknown.

    Returns:
        The frame, and the names of the outputs in it, which do not clash with its columns.
    """
    columns = columns or frame.collect_schema().names()
    names = [free_name(f"made{n}", columns) for n in range(len(program.outputs))]
    outputs = zip(names, program.outputs, strict=True)
    program = replace(
        program, outputs=tuple((result.with_(name=name), step) for name, (result, step) in outputs)
    )
    if is_gpu(engine) and not is_one_query(program):
        rows = collect_on_gpu(frame)
        return rows.hstack(gpu_runner(program)(rows.lazy())).lazy(), names
    verbs = VERBS_ON_GPU if is_gpu(engine) else VERBS
    for added in compile_stages(program, verbs, beside=columns):
        frame = frame.with_columns(added)
    return frame.select(*columns, *names), names
