"""Ratings in the shape of MovieLens, small enough to check by hand, and a process to kill.

The fixtures import `workflow`: with a verb that an interpreter lacks it cannot be imported, and
`test_every_verb.py` has to say so.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import at_calls
import polars as pl
import pytest
from killed_at import Process

if TYPE_CHECKING:
    from workflow import Workflow


@pytest.fixture
def ratings() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "userId": [7, 7, 9, None, 7, 9],
            "movieId": [10, 20, 10, 30, None, 10],
            "rating": [5.0, 3.5, None, 1.0, 4.0, float("nan")],
            "genres": [["a", "b"], [], None, ["a"], ["c", None], ["b", "a"]],
        }
    )


@pytest.fixture
def fitted(ratings: pl.DataFrame) -> Workflow:
    from workflow import Workflow, ops

    ids = ["userId", "genres"] >> ops.Categorify()
    label = ["rating"] >> ops.FillMissing(0) >> ops.LambdaOp(lambda rating: rating > 3)
    return Workflow(ids + label).fit(ratings)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A process that is killed at a step of what it is asked to do, and a folder of its own."""
    root = tmp_path_factory.mktemp("killed")
    process = Process(root, at_calls.LIBRARY)
    process.root = root
    yield process
    process.close()


# How long a worker asks for the results of a killed one; and when the cluster looks whether a killed one has
# a successor, and closes its nanny if not. In no test, since it might just have been killed again.
_TIMES = {
    "distributed.comm.timeouts.connect": "2s",
    "distributed.deploy.lost-worker-timeout": "24h",
}
# Dask observes itself a hundred to a thousand times a second: a fifth of a core.
_WITHOUT_OBSERVATION = {
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """The client of a cluster of two processes, which are replaced if they are killed.

    Started for each file of tests: one that waits takes 4 % of a core, for as long as the others run.
    """
    import dask
    from distributed import Client, LocalCluster

    folder = str(tmp_path_factory.mktemp("dask"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            dask.config.set({**_TIMES, **_WITHOUT_OBSERVATION}),
            LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=folder
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
