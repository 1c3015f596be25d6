"""Workflows over the data sets, and the pipelines of workflow and model that are served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import data
from benchmarks.data import CATS, CONTS
from workflow import Workflow, ops


@dataclass(frozen=True)
class Pipeline:
    """The work of a data set.

    Attributes:
        draw: makes so many raw rows.
        workflow: the work as operators, not fitted; of the folder that the raw files are in.
        ids: the categorical columns.
    """

    draw: data.Draw
    workflow: Callable[[Path], Workflow]
    ids: list[str]

    def write(self, folder: Path, rows: int) -> list[Path]:
        """Write raw rows to a folder, and MovieLens' movies beside them, unless they are there."""
        paths = data.write_files(folder, self.draw.__name__, rows, self.draw)
        if self.draw is data.ratings and not (folder / "movies.parquet").exists():
            data.movies(np.random.default_rng(0)).write_parquet(folder / "movies.parquet")
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
    "criteo": Pipeline(data.raw_clicks, click_workflow, CATS),
    "movielens": Pipeline(data.ratings, rating_workflow, ["userId", "movieId", "genres"]),
    "lists": Pipeline(data.lists, list_workflow, ["genres"]),
}


@dataclass(frozen=True)
class ServedPipeline:
    """An exportable workflow and network, and rows for requests."""

    workflow: Workflow
    model: Any
    labels: list[str]
    rows: pl.DataFrame


def serve_ratings(requests: int) -> ServedPipeline:
    """Two ids that a client sends, genres that are joined: 162k x 64, 57k x 64, 20 x 16, 3 x 128."""
    from training import models  # noqa: PLC0415 - TensorFlow, where a model is wanted

    random, count, known = np.random.default_rng(0), max(requests, 300_000), 56_870

    def every(ids: Any) -> Any:
        return random.permutation(np.resize(ids, count))

    rows = data.ratings(count, random).with_columns(
        userId=every(np.arange(data.USERS)), movieId=every(np.arange(known) * 3 + 1)
    )
    workflow = rating_workflow(data.movies(random, known)).fit(rows)
    workflow.output_dtypes["genres"] = "int64"  # as the network takes lists
    scalars = {name: (rows_of(workflow, name), 64) for name in ("userId", "movieId")}
    model = models.mlp((scalars, {"genres": (rows_of(workflow, "genres"), 16)}))
    return ServedPipeline(workflow, model, ["rating"], rows.head(requests))


def serve_clicks(requests: int) -> ServedPipeline:
    """13 counts and 26 ids that a client sends: 39 inputs; tables 16 wide, 3 x 128."""
    from training import models  # noqa: PLC0415 - TensorFlow, where a model is wanted

    rows = data.raw_clicks(max(requests, 300_000), np.random.default_rng(1))
    workflow = click_workflow().fit(rows)
    sizes = {name: (rows_of(workflow, name), 16) for name in CATS}
    return ServedPipeline(workflow, models.mlp(sizes, CONTS), ["label"], rows.head(requests))


def rows_of(workflow: Workflow, column: str) -> int:
    """The number of rows that an embedding of a column needs."""
    return int(workflow.output_schema[column].properties["cardinality"])


SERVED = {"movielens": serve_ratings, "criteo": serve_clicks}
