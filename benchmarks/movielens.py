"""Raw data of MovieLens' shape: ratings by user and movie, and the movies' genres in a table of their own."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import polars as pl

from workflow import Workflow, ops

USERS, MOVIES = 162_541, 59_047
GENRES = [
    "Drama",
    "Comedy",
    "Thriller",
    "Romance",
    "Action",
    "Horror",
    "Crime",
    "Adventure",
    "Sci-Fi",
    "Children",
    "Animation",
]
CATS = ["userId", "movieId", "genres"]
ROW_GROUP = 250_000
ROWS_PER_FILE = 2_000_000


def make_raw(folder: Path, rows: int, seed: int = 0) -> list[Path]:
    """Write the ratings as parquet files of two million at most, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    count = max(4, -(-rows // ROWS_PER_FILE))
    paths = [folder / f"ratings_{rows}_{number:02}.parquet" for number in range(count)]
    starts = [rows * number // count for number in range(count + 1)]
    for number, path in enumerate(paths):
        if not path.exists():
            random = np.random.default_rng([seed, number])
            partial = path.with_suffix(".partial")
            ratings = make_ratings(starts[number + 1] - starts[number], random)
            ratings.write_parquet(partial, compression="snappy", row_group_size=ROW_GROUP)
            partial.rename(path)
    if not (folder / "movies.parquet").exists():
        make_movies(np.random.default_rng(seed)).write_parquet(folder / "movies.parquet")
    return paths


def make_ratings(count: int, random: np.random.Generator) -> pl.DataFrame:
    """Popular movies and active users are rated and rate often."""
    movie = np.minimum(random.zipf(1.2, count), 2**40) * 7919 % MOVIES
    user = (random.random(count) ** 2 * USERS).astype(np.int64)
    stars = random.integers(1, 11, count) / 2
    return pl.DataFrame({"userId": user + 1, "movieId": movie * 3 + 1, "rating": stars})


def make_movies(random: np.random.Generator) -> pl.DataFrame:
    """Each movie with one to six genres."""
    counts = random.choice(np.arange(1, 7), MOVIES, p=(0.42, 0.32, 0.17, 0.06, 0.02, 0.01))
    genres = [random.choice(GENRES, count, replace=False).tolist() for count in counts]
    return pl.DataFrame({"movieId": np.arange(MOVIES) * 3 + 1, "genres": genres})


def make_workflow(folder: Path) -> Workflow:
    """The work as operators."""
    movies = ["movieId"] >> ops.JoinExternal(str(folder / "movies.parquet"), on="movieId")
    ids = (["userId"] + movies) >> ops.Categorify(dtype="int32")
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    return Workflow(ids + label)


def by_hand(files: list[Path], out: Path) -> dict[str, float]:
    """What a Polars user writes: the genres joined and exploded, coded in the movies' table."""
    start = time.perf_counter()
    movies = pl.scan_parquet(files[0].parent / "movies.parquet")
    frame = pl.scan_parquet([*files]).join(movies, on="movieId", how="left", maintain_order="left")
    counts = [frame.select(c).drop_nulls().group_by(c).len() for c in ("userId", "movieId")]
    genres = frame.select(pl.col("genres")).explode("genres", empty_as_null=False).drop_nulls()
    tables = pl.collect_all([*counts, genres.group_by("genres").len()], engine="streaming")
    vocabularies = {
        c: t.sort(["len", c], descending=[True, False]).select(
            c, (pl.int_range(pl.len()) + 3).cast(pl.Int32).alias("id")
        )
        for c, t in zip(CATS, tables, strict=True)
    }
    fitted = time.perf_counter()
    keys, codes = vocabularies["genres"]["genres"], vocabularies["genres"]["id"]
    coded = pl.element().replace_strict(keys, codes, default=2, return_dtype=pl.Int32)
    frame = pl.scan_parquet([*files]).join(
        movies.with_columns(pl.col("genres").list.eval(coded)),
        on="movieId",
        how="left",
        maintain_order="left",
    )
    for column in ("userId", "movieId"):
        ids = vocabularies[column].lazy().rename({"id": f"{column}_id"})
        frame = frame.join(ids, on=column, how="left", maintain_order="left")
    out.mkdir()
    frame.select(
        *(pl.col(f"{c}_id").fill_null(2).alias(c) for c in ("userId", "movieId")),
        pl.col("genres").fill_null([]),
        (pl.col("rating") > 3).cast(pl.Int8),
    ).sink_parquet(
        out / "part.parquet", compression="snappy", row_group_size=250_000, engine="streaming"
    )
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}
