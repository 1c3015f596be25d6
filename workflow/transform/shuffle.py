"""A uniform shuffle of more rows than fit into memory, in two passes over the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from workflow.files.write_errors import write_errors
from workflow.progress.stage import advance, restart


def shuffled(frames: Iterable[pl.DataFrame], scratch: Path, seed: int) -> Iterator[pl.DataFrame]:
    """The same rows in an order determined by the seed; all orders are equally likely.

    The first pass shuffles each frame and writes it to disk. Then each of as many buckets as there
    are frames takes the next few rows of every frame, as many as a multinomial distribution draws,
    as if each row had drawn its bucket; the second pass reads and shuffles bucket by bucket.
    Memory: three times the rows of a frame. Disk: all rows once, uncompressed.

    Source: Rao, "Randomization of large sets", 1961; Sanders, "Random permutations on
    distributed, external and hierarchical memory", 1998.

    Args:
        frames: at least one, of about the same size.
        scratch: a folder for the frames, which the caller removes after the last one.
        seed: seed of the order.
    """
    random = np.random.default_rng(seed)
    files, sizes = [], []
    for number, frame in enumerate(frames):
        files.append(scratch / f"shuffle-{number:05}.arrow")
        sizes.append(frame.height)
        with write_errors(f"parquet to {scratch}"):
            frame[random.permutation(frame.height)].write_ipc(files[-1], compression="uncompressed")
    restart("into a random order")
    buckets = len(files)
    counts = np.array([random.multinomial(size, [1 / buckets] * buckets) for size in sizes])
    starts = np.cumsum(counts, axis=1) - counts
    # Memory-mapped, so that only the pages of a bucket's rows are read; and once, as each takes time.
    mapped = list(map(_mapped, files))
    for bucket in range(buckets):
        runs = zip(mapped, starts[:, bucket], counts[:, bucket], strict=True)
        rows = pl.concat([frame.slice(start, count) for frame, start, count in runs])
        yield rows[random.permutation(rows.height)]
        advance(rows.height)


def _mapped(file: Path) -> pl.DataFrame:
    """The rows of a file as views of its pages; `pl.read_ipc` of Polars 2 reads them into memory."""
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    return pl.DataFrame(pl.from_arrow(table, rechunk=False))
