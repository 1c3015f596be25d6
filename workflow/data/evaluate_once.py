"""The rows of a lazy frame, evaluated once and read as often as needed."""

from __future__ import annotations

import tempfile

import polars as pl

from workflow.engine.engine import brought_to_host, is_gpu


def evaluate_once(frame: pl.LazyFrame, engine: str) -> pl.LazyFrame:
    """The same rows in an order that is fixed, whatever the frame is made of.

    A lazy frame that comes of `unique`, `group_by` or a join has its rows in another order at each
    evaluation, and one that samples has other rows. What belongs together must be read from one
    evaluation of it.

    Args:
        frame: evaluated here, by Polars' streaming engine, in memory that does not grow with it.
        engine: on "gpu" the GPU evaluates the frame, and its rows are in memory.

    Returns:
        a scan of a temporary parquet file without a name (in `tempfile.gettempdir()`), which the
        operating system removes with the last frame that reads it, or with the process.

    Example:
        >>> rows = evaluate_once(pl.LazyFrame({"user": [7, 9, 7, 8]}).unique(), "cpu")
        >>> rows.collect().equals(rows.collect())
        True
    """
    if is_gpu(engine):
        return brought_to_host(frame, engine)
    with tempfile.TemporaryFile(suffix=".parquet") as file:
        frame.sink_parquet(file, compression="lz4")
        file.seek(0)
        # Polars has the file open for itself from here on.
        return pl.scan_parquet(file)
