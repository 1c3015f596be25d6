"""The two pipelines that `benchmarks.serving` serves, MovieLens-like and Criteo-like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks.criteo import CATS, CONTS, make_rows
from training import models
from workflow import Workflow, ops

USERS, MOVIES, GENRES = 162_541, 56_870, 20


@dataclass(frozen=True)
class ServedPipeline:
    """What is exported, and rows to ask for."""

    workflow: Workflow
    model: Any
    labels: list[str]
    rows: pl.DataFrame


def movielens(requests: int) -> ServedPipeline:
    """Two ids that a client sends, genres that are joined: 162k x 64, 57k x 64, 20 x 16, 3 x 128."""
    random = np.random.default_rng(0)
    movies = pl.DataFrame(
        {
            "movieId": np.arange(MOVIES),
            "genres": [
                random.integers(0, GENRES, n).tolist() for n in random.integers(0, 6, MOVIES)
            ],
        }
    )
    count = max(requests, 300_000)
    ratings = pl.DataFrame(
        {
            "userId": random.permutation(np.resize(np.arange(USERS), count)),
            "movieId": random.permutation(np.resize(np.arange(MOVIES), count)),
            "rating": random.integers(1, 11, count) / 2,
        }
    )
    joined = ["movieId"] >> ops.JoinExternal(
        movies, on="movieId", columns_ext=["movieId", "genres"]
    )
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    workflow = Workflow(((["userId"] + joined) >> ops.Categorify()) + label).fit(ratings)
    for name in ("userId", "movieId"):
        workflow.output_dtypes[name] = "int32"
    scalars = {name: (rows_of(workflow, name), 64) for name in ("userId", "movieId")}
    model = models.mlp((scalars, {"genres": (rows_of(workflow, "genres"), 16)}))
    return ServedPipeline(workflow, model, ["rating"], ratings.head(requests))


def criteo(requests: int) -> ServedPipeline:
    """13 counts filled, clipped, logged and normalised, 26 ids: 39 inputs; 16 wide, 3 x 128."""
    rows = make_rows(max(requests, 300_000), np.random.default_rng(1))
    clipped = CONTS >> ops.FillMissing(0.0) >> ops.LambdaOp(lambda c: c.clip(0.0, None).log1p())
    label = ["label"] >> ops.LambdaOp(lambda label: label.cast("int8"))
    ids = CATS >> ops.Categorify(dtype="int32")
    workflow = Workflow((clipped >> ops.Normalize()) + ids + label).fit(rows)
    sizes = {name: (rows_of(workflow, name), 16) for name in CATS}
    return ServedPipeline(workflow, models.mlp(sizes, CONTS), ["label"], rows.head(requests))


def rows_of(workflow: Workflow, column: str) -> int:
    """How many rows an embedding of a column needs."""
    return int(workflow.output_schema[column].properties["cardinality"])


PIPELINES = {"movielens": movielens, "criteo": criteo}
