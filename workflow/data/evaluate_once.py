"""The rows of a lazy frame, evaluated once and read as often as needed."""

from __future__ import annotations

import os
import tempfile

import polars as pl

from workflow.engine.engine import IN_ORDER, brought_to_host, is_gpu
from workflow.errors import OF_DISKS, WorkflowError, cannot_write
from workflow.progress.stage import showing


def evaluate_once(frame: pl.LazyFrame, engine: str) -> pl.LazyFrame:
    """The same rows in a fixed order, whatever query the frame is.

    A lazy frame from `unique`, `group_by` or a join has its rows in another order at each
    evaluation, and one that samples has other rows. Columns that belong together must come from one
    evaluation.

    Args:
        frame: evaluated here, by Polars' streaming engine, in bounded memory; its rows stay in order.
        engine: "gpu" to evaluate the frame on the GPU, with its rows in memory.

    Returns:
        A scan of an unnamed temporary parquet file (in `tempfile.gettempdir()`), which the
        operating system removes with the last frame that reads it, or with the process.

    Raises:
        WorkflowError: the file cannot be written, such as on a full disk.

    Example:
        >>> rows = evaluate_once(pl.LazyFrame({"user": [7, 9, 7, 8]}).unique(), "cpu")
        >>> rows.collect().equals(rows.collect())
        True
    """
    with showing("the query"):
        return _evaluated(frame, engine)


def _evaluated(frame: pl.LazyFrame, engine: str) -> pl.LazyFrame:
    if is_gpu(engine):
        return brought_to_host(frame, engine)
    with tempfile.TemporaryFile(suffix=".parquet") as file:
        try:
            frame.sink_parquet(file, compression="lz4", optimizations=IN_ORDER)
        except (OSError, pl.exceptions.PolarsError) as error:
            reasons = [reason for reason in map(os.strerror, OF_DISKS) if reason in str(error)]
            if not reasons:  # of reading
                raise
            place = f"a temporary file to {tempfile.gettempdir()}"
            raise WorkflowError(
                f"{cannot_write(place, reasons[0])} Or set TMPDIR to another folder."
            ) from error
        file.seek(0)
        # From here on Polars holds the file open.
        return pl.scan_parquet(file)
