"""Rows of the data sets' shapes, as parquet files: Criteo-like, MovieLens-like, and lists."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from benchmarks.models import Shape  # which imports TensorFlow

CONTS = [f"I{number}" for number in range(1, 14)]
CATS = [f"C{number}" for number in range(1, 27)]
LISTS = ["L1", "L2", "L3"]
USERS, MOVIES = 162_541, 59_047
GENRES = [
    *("Drama", "Comedy", "Thriller", "Romance", "Action", "Horror", "Documentary", "Crime"),
    *("(no genres listed)", "Adventure", "Sci-Fi", "Children", "Animation", "Mystery", "Fantasy"),
    *("War", "Western", "Musical", "Film-Noir", "IMAX"),
]
ROWS_PER_FILE = 2_000_000
Draw = Callable[[int, np.random.Generator], pl.DataFrame]


def cardinalities(most: int) -> dict[str, int]:
    """Name -> the number of ids of each of Criteo's categorical columns."""
    sizes = np.geomspace(10, most, len(CATS)).astype(int)
    return dict(zip(CATS, map(int, sizes), strict=True))


def write_files(
    folder: Path,
    name: str,
    rows: int,
    draw: Draw,
    *,
    files: int | None = None,
    row_group: int = 250_000,
    seed: int = 0,
) -> list[Path]:
    """Write rows as parquet files, unless they are there.

    Args:
        folder: where the files go.
        name: of the data, for the files' names.
        rows: of all files together.
        draw: makes so many rows; see the functions below.
        files: how many; else as many as two million rows each ask for, four at least.
        row_group: rows of a row group.
        seed: of the random numbers; a file's own number makes its rows differ from the others'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = files or max(4, -(-rows // ROWS_PER_FILE))
    paths = [folder / f"{name}_{rows}_{row_group}_{number:02}.parquet" for number in range(count)]
    starts = [rows * number // count for number in range(count + 1)]

    def write(number: int) -> None:
        random = np.random.default_rng([seed, number])
        frame = draw(starts[number + 1] - starts[number], random)
        partial = paths[number].with_suffix(".partial")
        frame.write_parquet(partial, compression="snappy", row_group_size=row_group)
        partial.rename(paths[number])

    missing = [number for number, path in enumerate(paths) if not path.exists()]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(write, missing))
    return paths


def clicks(folder: Path, rows: int, *, device: str = "cpu", lists: bool = False) -> list[Path]:
    """Write clicks that a workflow has prepared, in row groups that suit the device's loader."""
    name = "clicks_with_lists" if lists else "clicks"
    files, row_group = (8, 1_000_000) if device == "gpu" else (4, 500_000)

    def draw(count: int, random: np.random.Generator) -> pl.DataFrame:
        return prepared_clicks(count, random, lists=lists)

    return write_files(folder, name, rows, draw, files=files, row_group=row_group)


def raw_clicks(count: int, random: np.random.Generator) -> pl.DataFrame:
    """Criteo-like rows as they come in logs: 13 counts with nulls, 26 ids, a label."""
    columns = {}
    for name in CONTS:
        values = np.floor(random.lognormal(2, 2, count)).astype(np.float32)
        columns[name] = pl.Series(values).set(pl.Series(random.random(count) < 0.1), None)
    for name, size in cardinalities(2_000_000).items():
        # Spread over a range, so that a lookup is a lookup.
        ids = random.zipf(1.1, count) % size
        columns[name] = pl.Series(ids.astype(np.int64) * 2_654_435_761 % (1 << 31))
    columns["label"] = pl.Series((random.random(count) < 0.25).astype(np.int32))
    return pl.DataFrame(columns)


def prepared_clicks(
    count: int, random: np.random.Generator, *, most: int = 1_000_000, lists: bool = False
) -> pl.DataFrame:
    """Criteo-like rows after preprocessing: 13 float32, 26 int32, and a label that can be learnt.

    Args:
        count: of rows.
        random: draws them; how the label depends on the columns is the same for all.
        most: ids of the largest column.
        lists: whether there are three columns of ten ids a row more.
    """
    effects = np.random.default_rng(0)
    columns: dict[str, Any] = {name: random.standard_normal(count, np.float32) for name in CONTS}
    score = sum(effects.normal(0, 0.25) * columns[name] for name in CONTS) - 1.5
    for name, size in cardinalities(most).items():
        ids = (random.pareto(1.0, count).astype(np.int64) % size).astype(np.int32)
        score = score + effects.normal(0, 0.3, size)[ids]
        columns[name] = ids
    columns["label"] = (random.random(count) < 1 / (1 + np.exp(-score))).astype(np.int32)
    frame = pl.DataFrame(columns)
    for name in LISTS if lists else ():
        ids = random.integers(0, 100_000, (count, 10), dtype=np.int32)
        frame = frame.with_columns(pl.Series(name, ids).cast(pl.List(pl.Int32)))
    return frame


def shaped_clicks(shape: Shape, count: int, random: np.random.Generator) -> pl.DataFrame:
    """Rows of a model's shape after preprocessing: float32, int64, lists of int64, and a label."""
    columns: dict[str, Any] = {
        name: random.standard_normal(count, np.float32) for name in shape.numbers
    }
    for name, rows in shape.scalars.items():
        columns[name] = (random.zipf(1.2, count) % rows).astype(np.int64)
    for name, rows in shape.multi.items():
        ids = (random.zipf(1.2, (count, shape.length)) % rows).astype(np.int64)
        columns[name] = pl.Series(ids).cast(pl.List(pl.Int64))
    score = columns["I1"] + (columns["C1"] % 3 == 0) + random.standard_normal(count)
    columns["label"] = (score > 0.5).astype(np.float32)
    return pl.DataFrame(columns)


def ratings(count: int, random: np.random.Generator) -> pl.DataFrame:
    """MovieLens-like ratings: popular movies and active users are rated and rate often."""
    movie = np.minimum(random.zipf(1.2, count), 2**40) * 7919 % MOVIES
    user = (random.random(count) ** 2 * USERS).astype(np.int64)
    stars = random.integers(1, 11, count) / 2
    return pl.DataFrame({"userId": user + 1, "movieId": movie * 3 + 1, "rating": stars})


def movies(random: np.random.Generator, count: int = MOVIES) -> pl.DataFrame:
    """Each movie with one to six genres."""
    counts = random.choice(np.arange(1, 7), count, p=(0.42, 0.32, 0.17, 0.06, 0.02, 0.01))
    genres = [random.choice(GENRES, each, replace=False).tolist() for each in counts]
    return pl.DataFrame({"movieId": np.arange(count) * 3 + 1, "genres": genres})


def lists(count: int, random: np.random.Generator) -> pl.DataFrame:
    """Lists of strings and of numbers, empty and missing ones too."""
    names = pl.Series(GENRES).gather(random.integers(0, len(GENRES), 2000))
    lengths = random.integers(0, 5, 1000)
    table = pl.DataFrame(
        {
            "genres": [names[2 * n : 2 * n + lengths[n]].to_list() for n in range(1000)],
            "clicks": [random.integers(0, 10**6, n).tolist() if n else None for n in lengths],
        },
        schema={"genres": pl.List(pl.String), "clicks": pl.List(pl.Int64)},
    )
    return table[np.minimum(random.zipf(1.2, count), 2**40) * 7919 % 1000]
