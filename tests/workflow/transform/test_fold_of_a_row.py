"""A row's fold is that of its number in the data, by whatever way the data is read and computed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from dask.distributed import Client, LocalCluster
from numpy.testing import assert_allclose

from workflow import Workflow, ops

ROWS, FOLDS, SEED, SMOOTH = 20_000, 5, 9, 3.0
ENCODED = {"TE_user_clicked": ["user"], "TE_user_city_clicked": ["user", "city"]}


def encoding() -> Workflow:
    groups = ["user", ["user", "city"]]
    settings = {"kfold": FOLDS, "fold_seed": SEED, "p_smooth": SMOOTH, "out_dtype": "float64"}
    return Workflow((groups >> ops.TargetEncoding("clicked", **settings)) + "row")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Rows in seven files of odd row groups, where neighbours are of one user."""
    random = np.random.default_rng(2)
    frame = pl.DataFrame(
        {
            "row": np.arange(ROWS),
            "user": np.arange(ROWS) // 7,
            "city": pl.Series(["a", "b", None]).gather(random.integers(0, 3, ROWS)),
            "clicked": random.random(ROWS) < 0.4,
        }
    )
    folder = tmp_path_factory.mktemp("rows")
    for number in range(7):
        part = frame[number * ROWS // 7 : (number + 1) * ROWS // 7]
        part.write_parquet(folder / f"{number}.parquet", row_group_size=100 + 37 * number)
    return folder


def finalised(bits: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64, variant 13."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


@pytest.fixture(scope="module")
def by_hand(data) -> pd.DataFrame:
    """The encodings in pandas, from the definition: smoothed means over the other folds."""
    rows = pd.concat([pd.read_parquet(file) for file in sorted(data.iterdir())], ignore_index=True)
    rows["city"] = rows["city"].fillna("none")
    seed = np.array([(SEED + 1) * 0x9E3779B97F4A7C15 % 2**64], np.uint64)
    numbers = np.arange(len(rows), dtype=np.uint64)
    fold = (finalised(numbers + finalised(seed)) >> np.uint64(1)) % np.uint64(FOLDS)
    made = pd.DataFrame({name: np.empty(len(rows)) for name in ENCODED})
    for number in range(FOLDS):
        own, others = rows[fold == number], rows[fold != number]
        mean = others["clicked"].mean()
        for name, group in ENCODED.items():
            known = others.groupby(group)["clicked"].agg(["sum", "count"]).reset_index()
            found = own[group].merge(known, on=group, how="left").fillna({"sum": 0, "count": 0})
            encoded = (found["sum"] + SMOOTH * mean) / (found["count"] + SMOOTH)
            made.loc[own.index, name] = encoded.to_numpy()
    return made


def expect_encoded(made: pl.DataFrame, by_hand: pd.DataFrame) -> None:
    assert made["row"].to_list() == list(range(ROWS))
    for name in ENCODED:
        assert_allclose(made[name], by_hand[name], rtol=1e-12)


def read(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(file) for file in sorted(folder.iterdir())], rechunk=False)


def to_files(folder: Path, out: Path) -> pl.DataFrame:
    files = encoding().fit_transform_to_parquet(folder, out, rows_per_file=777)
    return pl.concat(map(pl.read_parquet, files))


WAYS: dict[str, Callable[[Path, Path], pl.DataFrame]] = {
    "a frame": lambda folder, _: encoding().fit_transform(read(folder).rechunk()).collect(),
    "a frame of chunks": lambda folder, _: encoding().fit_transform(read(folder)).collect(),
    "pandas": lambda folder, _: encoding().fit_transform(read(folder).to_pandas()).collect(),
    "a lazy frame": lambda folder, _: encoding().fit_transform(read(folder).lazy()).collect(),
    "a scan": lambda folder, _: encoding().fit_transform(pl.scan_parquet(folder)).collect(),
    "files": lambda folder, _: encoding().fit_transform(folder).collect(),
    "files, streamed": lambda folder, _: (
        encoding().fit_transform(folder).collect(engine="streaming")
    ),
    "files, on the CPU": lambda folder, _: encoding().fit_transform(folder, engine="cpu").collect(),
    "files to files": to_files,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_encodings_are_those_of_pandas_in_every_way(way, data, by_hand, tmp_path):
    expect_encoded(way(data, tmp_path / "out"), by_hand)


def test_the_encodings_are_those_of_pandas_on_a_cluster(data, by_hand, tmp_path):
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            local_directory=str(tmp_path / "dask"),
        ) as cluster,
        Client(cluster) as client,
    ):
        expect_encoded(encoding().fit_transform(data, client=client).collect(), by_hand)
        files = encoding().fit_transform_to_parquet(data, tmp_path / "out", client=client)
    expect_encoded(pl.concat(map(pl.read_parquet, files)), by_hand)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import polars as pl
from test_fold_of_a_row import encoding
assert pl.thread_pool_size() == int(sys.argv[4])
encoding().fit_transform(sys.argv[2]).collect(engine="streaming").write_parquet(sys.argv[3])
"""


@pytest.mark.parametrize("threads", [1, 5])
def test_the_encodings_are_those_of_pandas_on_any_number_of_threads(
    threads, data, by_hand, tmp_path
):
    out = tmp_path / "encoded.parquet"
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(data), str(out)]
    environment = os.environ | {"POLARS_MAX_THREADS": str(threads)}
    subprocess.run([*command, str(threads)], env=environment, check=True)
    expect_encoded(pl.read_parquet(out), by_hand)
