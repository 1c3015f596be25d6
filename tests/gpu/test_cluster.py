"""A Dask worker with a GPU learns and writes what one machine does on its processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster
from polars.testing import assert_frame_equal

from workflow import Workflow, WorkflowError, ops
from workflow.fit import learn_on_cluster
from workflow.transform.pieces_in_order import row_runner

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """Files of clicks; sums of the prices are exact in any order."""
    folder, random = tmp_path_factory.mktemp("clicks"), np.random.default_rng(5)
    for number in range(8):
        user = random.zipf(1.2, 5_000) % 9_000 - 5
        pl.DataFrame(
            {
                "user": [None if n == 3 else int(n) for n in user],
                "city": [None if n % 11 == 0 else f"é{n % 130}" for n in user],
                "tags": [[f"t{n % 90}", None][: n % 3] for n in user],
                "price": random.integers(0, 50, len(user)).astype(float),
            }
        ).write_parquet(folder / f"{number:02}.parquet", row_group_size=1_000)
    return folder


def make():
    few = {"freq_threshold": 3, "max_size": {"city": 40}}
    return Workflow(
        (["user", "city", "tags"] >> ops.Categorify(**few))
        + (["user", "city"] >> ops.JoinGroupby(["price"], stats=["count", "sum", "min", "max"]))
        + (["price"] >> ops.FillMissing(0.0) >> ops.Normalize() >> ops.Rename(postfix="_scaled"))
    )


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_files_are_those_of_one_machine(client, clicks, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(learn_on_cluster, "ROWS_OF_A_PART", 2_000)
    expected = make().fit(clicks)
    made = make().fit(clicks, engine=engine, client=client)
    one = expected.transform_to_parquet(clicks, tmp_path / "one")
    other = made.transform_to_parquet(clicks, tmp_path / "other", engine=engine, client=client)
    assert [Path(path).name for path in one] == [Path(path).name for path in other]
    for left, right in zip(one, other, strict=True):
        assert_frame_equal(
            pl.read_parquet(left), pl.read_parquet(right), check_exact=False, rel_tol=1e-6
        )


def test_two_workers_with_one_gpu_are_refused(clicks, engine):
    if engine == "cpu":
        pytest.skip("a processor is shared by any number of workers")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        pytest.raises(WorkflowError, match="both use GPU 0"),
    ):
        make().fit(clicks, engine=engine, client=client)


def test_frames_in_memory_are_computed_again_and_again(clicks, engine):
    workflow = make().fit(clicks)
    frame = pl.read_parquet(clicks).head(3_000).select(workflow.program.inputs.names).lazy()
    run = row_runner(workflow.program, engine)
    expected = row_runner(workflow.program, "cpu")(frame)
    for _ in range(20):  # What was copied to the GPU is given back each time.
        assert_frame_equal(run(frame), expected, check_exact=False, rel_tol=1e-6)
