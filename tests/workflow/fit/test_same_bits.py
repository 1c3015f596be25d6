"""A fit is a function of its data: the same bits, whatever the threads do."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import same_bits
from distributed import Client, LocalCluster

from workflow import Workflow, ops
from workflow.fit import fit_graph, learn_on_cluster, learn_operators
from workflow.fit.learn_operators import learn_in_pieces, learn_parts

FITS = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
import same_bits
print(same_bits.every_way(sorted(Path(sys.argv[2]).iterdir())))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return same_bits.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def parts(monkeypatch):
    """Parts of few rows, so that there are several."""
    monkeypatch.setattr(fit_graph, "ROWS_OF_A_PASS", same_bits.ROWS_OF_A_PART)
    monkeypatch.setattr(learn_operators, "ROWS_OF_A_PASS", same_bits.ROWS_OF_A_PART)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("make", [same_bits.by_row, same_bits.filtered, same_bits.lagged])
def test_fits_of_the_same_files_are_equal_byte_for_byte(files, make):
    assert len({same_bits.fitted(make(), files) for _ in range(2)}) == 1


@pytest.mark.long
def test_fits_in_processes_of_other_numbers_of_threads_are_equal(files):
    found = {threads: in_process(files[0].parent, threads) for threads in (1, 3, 8)}
    assert found[1] == found[3] == found[8]


def in_process(folder, threads: int) -> dict[str, str]:
    ran = subprocess.run(
        [sys.executable, "-c", FITS, Path(same_bits.__file__).parent, folder],
        env={**os.environ, "POLARS_MAX_THREADS": str(threads)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ast.literal_eval(ran.stdout)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.xdist_group("cluster")
def test_the_order_in_which_the_parts_of_a_cluster_end_does_not_matter(files, monkeypatch):
    saved = set()
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=5, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        for last in (files[0], files[-1]):
            monkeypatch.setattr(learn_on_cluster, "learn_parts", after_others(files, last))
            saved.add(same_bits.fitted(same_bits.by_row(), files, client=client))
    assert len(saved) == 1


def after_others(files, last):
    """A function that learns from one file when those of all others have been learnt from."""
    ended = threading.Semaphore(0)

    def learn(learning, own, rows, engine):
        if own.files[0].path == last:
            for _ in files[1:]:
                assert ended.acquire(timeout=60)
        made = learn_parts(learning, own, rows, engine)
        ended.release()
        return made

    return learn


# pyarrow takes 2^20 rows as one batch; of several each has a thread.
@pytest.mark.parametrize(("keys", "count"), [(3, 4 * 2**20), (200_000, 1_000_000)])
def test_values_of_a_group_are_added_in_the_order_of_the_rows(keys, count):
    random = np.random.default_rng(3)
    key = random.integers(0, keys, count)
    value = 10.0 ** random.uniform(-8, 8, len(key))
    rows = pl.DataFrame({"key": key, "value": value})
    encode = ops.TargetEncoding("value", p_smooth=0, out_col="mean", out_dtype="float64")
    made = Workflow(["key"] >> encode).fit(rows).transform(rows.head(1_000)).collect()
    means = np.bincount(key, value, keys) / np.maximum(np.bincount(key, minlength=keys), 1)
    assert made["mean"].to_list() == means[key[:1_000]].tolist()


def test_moments_of_parts_are_added_in_the_order_of_the_parts():
    parts = [
        {"values": 1.0, "mean": mean, "squares": mean / 3, "min": mean, "max": mean}
        for mean in (10.0 ** np.random.default_rng(3).uniform(-8, 8, 40)).tolist()
    ]
    table = pl.concat([pl.LazyFrame([part]) for part in parts])
    merge = ops.Normalize().merge
    made = {merge({"a": table}, {})["a"].collect(engine="streaming").row(0) for _ in range(20)}
    assert len(made) == 1


def test_zero_has_no_sign_whichever_comes_first():
    zeros = pl.DataFrame({"a": [-0.0, 0.0], "b": [0.0, -0.0], "c": [-0.0, -0.0], "k": [1, 1]})
    numbers = ["a", "b", "c"]
    learnt = (
        (numbers >> ops.Normalize() >> ops.Rename(postfix="1"))
        + (numbers >> ops.NormalizeMinMax() >> ops.Rename(postfix="2"))
        + (numbers >> ops.FillMedian() >> ops.Rename(postfix="3"))
        + (numbers >> ops.DataStats() >> ops.Rename(postfix="4"))
        + (["k"] >> ops.JoinGroupby(numbers, stats=["sum", "mean", "min", "max"]))
        + (["k"] >> ops.TargetEncoding(numbers))
    )
    workflow = Workflow(learnt).fit(zeros)
    arrays = [
        column.array
        for state in workflow.states.values()
        for column in state.values()
        if column.rows
    ]
    facts = [workflow.training_data.columns[name] for name in numbers]
    arrays.append(np.array([[column.minimum, column.maximum] for column in facts]))
    assert not any(np.signbit(array).any() for array in arrays if array.dtype.kind == "f")


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("least", [0, 8_000, 10_000])
def test_rows_that_a_filter_keeps_are_learnt_from_in_pieces(tmp_path, least):
    rows = pl.DataFrame({"n": np.arange(9_000), "key": np.arange(9_000) % 3})
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=1_000)
    kept = ["n", "key"] >> ops.Filter(lambda columns: columns["n"] >= least)
    normal = kept["n"] >> ops.Normalize("float64") >> ops.Rename(postfix="_normal")
    workflow = Workflow(
        normal + (kept["key"] >> ops.Categorify() >> ops.JoinGroupby(kept["n"], stats=["sum"]))
    )
    made = workflow.fit(tmp_path / "rows.parquet").transform(tmp_path / "rows.parquet").collect()
    left = rows.filter(pl.col("n") >= least)
    if left.height:
        wanted = (left["n"] - left["n"].mean()) / left["n"].std()
        np.testing.assert_allclose(made["n_normal"], wanted, rtol=1e-12)
        sums = left.select(pl.col("n").sum().over("key"))
        np.testing.assert_allclose(made["key_n_sum"], sums["n"], rtol=1e-6)
    assert made.height == left.height


def test_pieces_of_no_rows_make_the_tables_of_no_rows():
    def tables(frame):
        return {"sum": (frame, pl.DataFrame.sum)}

    def merge(parts):
        return {"sum": parts["sum"].sum()}

    for values in ([], [1], list(range(100_000))):
        frame = pl.LazyFrame({"a": values}, schema={"a": pl.Int64})
        assert learn_in_pieces(frame, tables, merge)["sum"].item() == sum(values)
    assert learn_in_pieces(frame, lambda _: {}, merge) == {}
