"""Where queries run: on the CPU, or on the GPU through cuDF."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import polars as pl

from .errors import WorkflowError

# Queries of one pass over the data; of each the scan holds what it has read ahead.
QUERIES_AT_ONCE = 8


def is_gpu(engine: str) -> bool:
    """Whether an engine is the GPU's.

    Raises:
        WorkflowError: it is not "auto", "cpu" or "gpu", or it is the GPU's and is not installed.
    """
    if engine not in ("auto", "cpu", "gpu"):
        raise WorkflowError(f'Expected the engine "auto", "cpu" or "gpu". Received: {engine!r}.')
    if engine == "gpu" and find_spec("cudf_polars") is None:
        raise WorkflowError(
            'The engine "gpu" needs cuDF: pip install "parquet-to-triton[gpu]". '
            "Received: an environment without the package cudf_polars."
        )
    return engine == "gpu"


def collect_all(queries: Sequence[pl.LazyFrame], engine: str) -> list[pl.DataFrame]:
    """Run queries over data of any size, several over one scan.

    Args:
        queries: their results fit into memory.
        engine: "auto", "cpu" or "gpu"; what cannot run on the GPU is an error, never a fallback.

    Raises:
        WorkflowError: the engine is unknown.
    """
    if is_gpu(engine):
        # cuDF takes one query at a time; each reads only its own columns.
        return [query.collect(engine=pl.GPUEngine(raise_on_fail=True)) for query in queries]
    starts = range(0, len(queries), QUERIES_AT_ONCE)
    batches = [queries[start : start + QUERIES_AT_ONCE] for start in starts]
    return [made for batch in batches for made in pl.collect_all(batch, engine="streaming")]


def collect_on_gpu(query: pl.LazyFrame) -> pl.DataFrame:
    """Run a query over data that fits into the GPU's memory."""
    return query.collect(engine=pl.GPUEngine(executor="in-memory", raise_on_fail=True))
