"""Polars scripts that one would write for the work of `benchmarks.workflow`."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl

from benchmarks.data import CATS, CONTS, PIPELINES


def ranked(columns: list[str], counts: list[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The id of each value, by columns: the most frequent values first, from 3 on."""
    identifier = (pl.int_range(pl.len()) + 3).cast(pl.Int32).alias("id")
    return {
        column: table.sort(["len", column], descending=[True, False]).select(column, identifier)
        for column, table in zip(columns, counts, strict=True)
    }


def criteo(files: list[Path], out: Path) -> dict[str, float]:
    """Moments by one select, vocabularies by group_by, a join for each."""
    start = time.perf_counter()
    frame = pl.scan_parquet([*files])
    logged = [
        pl.col(c).fill_nan(None).fill_null(0.0).clip(0.0, None).log1p().cast(pl.Float64)
        for c in CONTS
    ]
    moments = frame.select(
        [e.mean().alias(f"{c}_mean") for c, e in zip(CONTS, logged, strict=True)]
        + [e.std().alias(f"{c}_std") for c, e in zip(CONTS, logged, strict=True)]
    )
    counts = [frame.select(c).drop_nulls().group_by(c).len() for c in CATS]
    stats, *tables = pl.collect_all([moments, *counts], engine="streaming")
    vocabularies = ranked(CATS, tables)
    fitted = time.perf_counter()
    values = stats.row(0, named=True)
    scaled = [
        ((e - values[f"{c}_mean"]) / values[f"{c}_std"]).cast(pl.Float32).alias(c)
        for c, e in zip(CONTS, logged, strict=True)
    ]
    for column, vocabulary in vocabularies.items():
        codes = vocabulary.lazy().rename({"id": f"{column}_id"})
        frame = frame.join(codes, on=column, how="left", maintain_order="left")
    ids = [
        pl.when(pl.col(c).is_null())
        .then(1)
        .otherwise(pl.col(f"{c}_id").fill_null(2))
        .cast(pl.Int32)
        .alias(c)
        for c in CATS
    ]
    out.mkdir()
    frame.select(*scaled, *ids, pl.col("label").cast(pl.Int8)).sink_parquet(
        out / "part.parquet", compression="snappy", row_group_size=250_000, engine="streaming"
    )
    return {"fit": fitted - start, "transform": time.perf_counter() - fitted}


def movielens(files: list[Path], out: Path) -> dict[str, float]:
    """Genres joined and exploded, coded in the movies' table."""
    start = time.perf_counter()
    movies = pl.scan_parquet(files[0].parent / "movies.parquet")
    frame = pl.scan_parquet([*files]).join(movies, on="movieId", how="left", maintain_order="left")
    counts = [frame.select(c).drop_nulls().group_by(c).len() for c in ("userId", "movieId")]
    genres = frame.select(pl.col("genres")).explode("genres", empty_as_null=False).drop_nulls()
    tables = pl.collect_all([*counts, genres.group_by("genres").len()], engine="streaming")
    vocabularies = ranked(PIPELINES["movielens"].ids, tables)
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


BY_HAND = {"criteo": criteo, "movielens": movielens}
