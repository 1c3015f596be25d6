"""Rows of the data sets' shapes, their files, and the workflows and networks for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from workflow import Workflow, ops

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


@dataclass(frozen=True)
class Pipeline:
    """The work of a data set.

    Attributes:
        draw: makes so many raw rows.
        workflow: the work as operators, not fitted; of the folder that the raw files are in.
        ids: the categorical columns.
    """

    draw: Draw
    workflow: Callable[[Path], Workflow]
    ids: list[str]

    def write(self, folder: Path, rows: int) -> list[Path]:
        """Write raw rows to a folder, and MovieLens' movies beside them, unless they are there."""
        paths = write_files(folder, self.draw.__name__, rows, self.draw)
        if self.draw is ratings and not (folder / "movies.parquet").exists():
            movies(np.random.default_rng(0)).write_parquet(folder / "movies.parquet")
        return paths


def click_workflow(_: Path = Path()) -> Workflow:
    """Counts filled, clipped, logged and normalised; ids made categories; the label cast."""
    clipped = CONTS >> ops.FillMissing(0.0) >> ops.LambdaOp(lambda c: c.clip(0.0, None).log1p())
    label = ["label"] >> ops.LambdaOp(lambda label: label.cast("int8"))
    return Workflow((clipped >> ops.Normalize()) + (CATS >> ops.Categorify(dtype="int32")) + label)


def rating_workflow(movies: Any) -> Workflow:
    """Genres joined as lists; users, movies and genres made categories; the rating compared.

    Args:
        movies: a table, or the folder that has its file.
    """
    if isinstance(movies, Path):
        movies = str(movies / "movies.parquet")
    joined = ["movieId"] >> ops.JoinExternal(movies, on="movieId")
    ids = (["userId"] + joined) >> ops.Categorify(dtype="int32")
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    return Workflow(ids + label)


def list_workflow(_: Path = Path()) -> Workflow:
    """Lists of strings made categories, lists of numbers logged and normalised."""
    clicks = ["clicks"] >> ops.LambdaOp(lambda clicks: (clicks.cast("float64") + 1.0).log1p())
    return Workflow((["genres"] >> ops.Categorify(dtype="int32")) + (clicks >> ops.Normalize()))


PIPELINES = {
    "criteo": Pipeline(raw_clicks, click_workflow, CATS),
    "movielens": Pipeline(ratings, rating_workflow, ["userId", "movieId", "genres"]),
    "lists": Pipeline(lists, list_workflow, ["genres"]),
}


@dataclass(frozen=True)
class ServedPipeline:
    """An exportable workflow and network, and rows for requests."""

    workflow: Workflow
    model: Any
    labels: list[str]
    rows: pl.DataFrame

    def export(self, name: str, folder: str | Path, runtime: str, most: int) -> Any:
        """Write an ensemble for requests of so many rows at most; the export's report."""
        from exporter import ServingOptions, export_tensorflow_ensemble  # noqa: PLC0415 - large

        serving = ServingOptions(runtime=runtime, max_batch_size=most)
        return export_tensorflow_ensemble(
            self.model, self.workflow, name, folder, self.labels, serving=serving
        )


def serve_ratings(requests: int) -> ServedPipeline:
    """Two ids that a client sends, genres that are joined: 162k x 64, 57k x 64, 20 x 16, 3 x 128."""
    from training import models  # noqa: PLC0415 - TensorFlow, where a model is wanted

    random, count, known = np.random.default_rng(0), max(requests, 300_000), 56_870

    def every(ids: Any) -> Any:
        return random.permutation(np.resize(ids, count))

    rows = ratings(count, random).with_columns(
        userId=every(np.arange(USERS)), movieId=every(np.arange(known) * 3 + 1)
    )
    workflow = rating_workflow(movies(random, known)).fit(rows)
    workflow.output_dtypes["genres"] = "int64"  # as the network takes lists
    scalars = {name: (rows_of(workflow, name), 64) for name in ("userId", "movieId")}
    model = models.mlp((scalars, {"genres": (rows_of(workflow, "genres"), 16)}))
    return ServedPipeline(workflow, model, ["rating"], rows.head(requests))


def serve_clicks(requests: int) -> ServedPipeline:
    """13 counts and 26 ids that a client sends: 39 inputs; tables 16 wide, 3 x 128."""
    from training import models  # noqa: PLC0415 - TensorFlow, where a model is wanted

    rows = raw_clicks(max(requests, 300_000), np.random.default_rng(1))
    workflow = click_workflow().fit(rows)
    sizes = {name: (rows_of(workflow, name), 16) for name in CATS}
    return ServedPipeline(workflow, models.mlp(sizes, CONTS), ["label"], rows.head(requests))


def rows_of(workflow: Workflow, column: str) -> int:
    """The number of rows that an embedding of a column needs."""
    return int(workflow.output_schema[column].properties["cardinality"])


SERVED = {"movielens": serve_ratings, "criteo": serve_clicks}
