"""No row is encoded by its own target, in whatever order a lazy frame gives its rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose

from workflow import Workflow, WorkflowError, ops

ROWS, USERS, SMOOTH = 30_000, 10_000, 2.0


@pytest.fixture(scope="module")
def noise() -> pl.DataFrame:
    """Users with about three rows each, and a target that says nothing about them."""
    random = np.random.default_rng(5)
    users = random.integers(0, USERS, ROWS)
    return pl.DataFrame(
        {
            "row": np.arange(ROWS),
            "user": users,
            "city": users % 700,
            "clicked": random.random(ROWS) < 0.5,
        }
    )


UNSTABLE: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "unique": lambda frame: frame.unique(),
    "group_by": lambda frame: frame.group_by("row").agg(pl.all().first()),
    "join": lambda frame: frame.join(frame.select("row"), on="row", how="inner"),
    "shuffle": lambda frame: frame.map_batches(lambda rows: rows.sample(fraction=1, shuffle=True)),
    "sample": lambda frame: frame.map_batches(lambda rows: rows.sample(fraction=0.8)),
}


def encoding(folds: int = 3) -> Workflow:
    """The encoding of every user, beside what it is made of."""
    encoded = ["user"] >> ops.TargetEncoding("clicked", kfold=folds, p_smooth=SMOOTH, fold_seed=3)
    return Workflow(encoded + ["row", "user", "clicked"])


def encoded_by_hand(rows: pd.DataFrame, folds: int = 3) -> np.ndarray:
    """The smoothed mean of the target in the other folds, these being of the rows' numbers."""
    fold_of = Workflow(
        ["n"] >> ops.LambdaOp(ops.TargetEncoding("t", kfold=folds, fold_seed=3).fold)
    )
    numbers = {"n": np.arange(len(rows))}
    fold = fold_of.fit(numbers).transform(numbers).collect()["n"].to_numpy()
    made = np.empty(len(rows))
    for number in range(folds):
        others, own = rows[fold != number], fold == number
        grouped = others.groupby("user")["clicked"].agg(["sum", "count"])
        sums, counts = (rows[own]["user"].map(grouped[c]).fillna(0) for c in ("sum", "count"))
        mean = others["clicked"].mean()
        made[own] = (sums + SMOOTH * mean) / (counts + SMOOTH)
    return made


def correlation(made: pl.DataFrame) -> float:
    return float(made.select(pl.corr("TE_user_clicked", pl.col("clicked").cast(pl.Int8))).item())


@pytest.mark.parametrize("unstable", UNSTABLE.values(), ids=UNSTABLE)
def test_encoding_of_an_unstable_frame_knows_nothing_of_its_own_target(unstable, noise, tmp_path):
    noise.write_parquet(tmp_path / "rows.parquet", row_group_size=1_000)
    frame = unstable(pl.scan_parquet(tmp_path / "rows.parquet"))
    made = encoding().fit_transform(frame).collect()
    # Each row once, with the values that belong together.
    assert made["row"].is_unique().all()
    wanted = noise[made["row"].sort()].select("row", "user", "clicked")
    assert made.select("row", "user", "clicked").sort("row").equals(wanted)
    assert made.height >= 0.8 * ROWS
    assert_allclose(made["TE_user_clicked"], encoded_by_hand(made.to_pandas()), rtol=1e-6)
    # Out of fold the correlation of noise is slightly negative: others' means lack the own value.
    assert -0.5 < correlation(made) < 0.05
    assert correlation(made) == pytest.approx(correlation(encoding().fit_transform(made).collect()))


def test_encodings_of_one_graph_have_the_same_rows(noise, tmp_path):
    """Each of them is a pass over the data, and so is a filter before them."""
    noise.write_parquet(tmp_path / "rows.parquet", row_group_size=1_000)
    kept = ["user", "city", "row", "clicked"] >> ops.Filter(lambda df: df["row"] >= 5_000)
    pair = kept[[["user", "city"]]] >> ops.TargetEncoding(kept["clicked"], kfold=4, fold_seed=8)
    user = kept["user"] >> ops.TargetEncoding(kept["clicked"], p_smooth=SMOOTH, fold_seed=3)
    twice = kept["city"] >> ops.TargetEncoding(user, out_col="twice")
    workflow = Workflow(user + pair + twice + kept["row", "user", "clicked"])
    made = workflow.fit_transform(pl.scan_parquet(tmp_path / "rows.parquet").unique()).collect()
    again = workflow.fit_transform(noise[made["row"]]).collect()
    assert made.equals(again)
    assert_allclose(made["TE_user_clicked"], encoded_by_hand(made.to_pandas()), rtol=1e-6)


def test_columns_named_as_the_fold_are_encoded_as_any_other(noise):
    rows = noise.select("clicked", "user", fold="user", fold_="user")
    encode = ops.TargetEncoding("clicked", kfold=3, p_smooth=SMOOTH, fold_seed=3)
    made = Workflow(["user", "fold", "fold_"] >> encode).fit_transform(rows).collect()
    for column in made:
        assert_allclose(column, encoded_by_hand(rows.to_pandas()), rtol=1e-6)


def test_files_of_unstable_rows_hold_what_was_encoded(noise, tmp_path):
    noise.write_parquet(tmp_path / "rows.parquet", row_group_size=1_000)
    frame = pl.scan_parquet(tmp_path / "rows.parquet").unique()
    encoding().fit_transform_to_parquet(frame, tmp_path / "encoded", rows_per_file=7_000)
    made = pl.read_parquet(tmp_path / "encoded" / "*.parquet")
    assert made.height == ROWS
    assert_allclose(made["TE_user_clicked"], encoded_by_hand(made.to_pandas()), rtol=1e-6)


GRAPHS: dict[str, Callable[[], Workflow]] = {
    "out of fold": encoding,
    "phases": lambda: Workflow(
        ["user"] >> ops.Categorify() >> ops.TargetEncoding("clicked") >> ops.Normalize()
    ),
    "row by row": lambda: Workflow(["user"] >> ops.Categorify()),
    "learns nothing": lambda: Workflow(["user"] >> ops.HashBucket(7)),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("to_files", [False, True])
def test_a_lazy_frame_is_evaluated_once(graph, to_files, noise, tmp_path, monkeypatch):
    evaluations = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def sampled(rows: pl.DataFrame) -> pl.DataFrame:
        evaluations.append(len(evaluations))
        return rows.sample(fraction=0.5, shuffle=True)

    frame = noise.lazy().map_batches(sampled, schema=noise.schema)
    if to_files:
        graph().fit_transform_to_parquet(frame, tmp_path / "made")
        made = pl.read_parquet(tmp_path / "made" / "*.parquet")
    else:
        lazy = graph().fit_transform(frame)
        made = lazy.collect()
        assert lazy.collect(engine="streaming").equals(made)
    assert made.height == ROWS // 2
    assert len(evaluations) == 1
    # What is kept of it has no name, and goes with the last frame that reads it.
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_fit_evaluates_a_lazy_frame_once(graph, noise):
    evaluations = []

    def counted(rows: pl.DataFrame) -> pl.DataFrame:
        evaluations.append(rows.height)
        return rows

    graph().fit(noise.lazy().map_batches(counted, schema=noise.schema))
    assert evaluations == [ROWS]


def test_floats_that_must_be_integers_are_of_the_same_evaluation(noise):
    """The ids are found to be floats when their operator has met them, and are read again."""
    evaluations = []

    def counted(rows: pl.DataFrame) -> pl.DataFrame:
        evaluations.append(rows.height)
        return rows

    floats = noise.with_columns(pl.col("user").cast(pl.Float64))
    frame = floats.lazy().map_batches(counted, schema=floats.schema)
    workflow = encoding().fit(frame)
    assert workflow.input_schema["user"].dtype == "int64"
    assert evaluations == [ROWS]


def test_rows_are_kept_until_the_last_frame_that_reads_them(noise):
    def open_files() -> set[Path]:
        links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return {file for file in links if "(deleted)" in str(file)}

    before = open_files()
    lazy = encoding().fit_transform(noise.lazy().unique())
    derived = lazy.select(pl.len())
    del lazy
    assert len(open_files() - before) == 1
    assert derived.collect().item() == ROWS
    del derived
    assert not open_files() - before


def test_a_lazy_frame_that_cannot_be_evaluated_is_an_error_of_ours():
    frame = pl.LazyFrame({"user": ["7", "x"], "clicked": [True, False]})
    numbers = frame.with_columns(pl.col("user").cast(pl.Int64))
    with pytest.raises(WorkflowError, match=r"The data cannot be fitted to: .*'x'|\"x\""):
        Workflow(["user"] >> ops.TargetEncoding("clicked")).fit_transform(numbers)
