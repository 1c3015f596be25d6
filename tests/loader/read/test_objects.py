"""Row groups of objects, fetched ahead, through a real server of S3."""

import contextlib
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from object_server import always, first_times

from loader import KerasSequenceLoader, LoaderError
from loader.files.fetch import AHEAD
from loader.files.parquet_files import read_footers
from loader.frameworks.checkpoint import LoaderCheckpoint
from training import save_model
from training.errors import TrainingError
from workflow import Workflow
from workflow.data.object_stores import Objects
from workflow.data.sources import parquet_files

pytestmark = pytest.mark.xdist_group("objects")
ROWS, FILES = 4_000, 3


@pytest.fixture
def folder(tmp_path):
    """A data set of a workflow: files of one row group each, with checksums."""
    rng = np.random.default_rng(5)
    rows = pl.DataFrame(
        {
            "user": rng.integers(0, 1 << 60, ROWS * FILES),
            "tags": [[n, n + 1] for n in range(ROWS * FILES)],
            "text": [str(n) * 4 for n in range(ROWS * FILES)],
        }
    )
    Workflow(rows.columns).transform_to_parquet(rows, tmp_path / "train", rows_per_file=ROWS)
    return tmp_path / "train"


def load(data, options=None, names=("user", "tags"), **settings):
    settings = {"batch_size": 512, "seed": 3, **settings}
    return KerasSequenceLoader(data, cat_names=list(names), storage_options=options, **settings)


def rows_of(loader):
    return [[np.asarray(v) for v in (x["user"], *x["tags"])] for x in loader]


def test_batches_of_objects_are_those_of_files_in_every_epoch(link, folder):
    remote, local = load(link.put_folder(folder, "train"), link.options), load(folder)
    for _ in range(2):
        for mine, other in zip(rows_of(remote), rows_of(local), strict=True):
            assert all(map(np.array_equal, mine, other))
    iterator = iter(local)
    next(iterator)
    remote.set_state(local.get_state())  # moved from files to a store
    assert np.array_equal(next(iter(remote))["user"], next(iterator)["user"])


def test_an_epoch_fetches_each_wanted_column_once(link, folder):
    loader = load(link.put_folder(folder, "train"), link.options, ["user"])
    before = link.moved
    assert sum(len(x["user"]) for x in loader) == ROWS * FILES
    assert ROWS * FILES * 8 <= link.moved - before < ROWS * FILES * 8 * 1.02
    assert link.count("list-type") == 1


def copies_in_memory():
    """The copies of objects that this process holds."""
    found = []
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed since
            found.append(str(opened.readlink()))
    return [name for name in found if "/memfd:parquet-loader" in name]


def test_announced_row_groups_are_fetched_before_they_are_taken(link, folder):
    files = parquet_files(link.put_folder(folder, "train"), Objects(link.options))
    fetcher = read_footers(files, ["user"]).fetcher
    places = [[(str(file.path), 0)] for file in files]
    link.requests.clear()
    with fetcher:
        fetcher.announce(places[0])
        deadline = time.monotonic() + 30
        while not link.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        [copy] = fetcher.take(places[0]).values()
        assert len(link.requests) == 1
        for size in range(1, 4):  # by iterators that are given up
            for place in places:
                fetcher.announce(place * size)
        deadline = time.monotonic() + 30
        while len(copies_in_memory()) > 2 * AHEAD + 1 and time.monotonic() < deadline:
            time.sleep(0.01)  # until those under way have ended
        # The last ones, and the one that was taken.
        assert len(copies_in_memory()) == 2 * AHEAD + 1
    found = pl.scan_parquet(copy.path).select("user").collect()
    assert found["user"].to_list() == pl.read_parquet(folder / files[0].path.name)["user"].to_list()
    assert not [t.name for t in threading.enumerate() if "parquet-loader-fetch" in t.name]


@pytest.mark.parametrize("fault", ["fail", "cut"])
def test_a_fetch_that_fails_or_is_cut_is_sent_again(link, folder, fault):
    link.fault = first_times(fault)
    loader = load(link.put_folder(folder, "train"), link.options, shuffle=False)
    users = np.concatenate([x["user"] for x in loader]).ravel()
    assert np.array_equal(users, pl.read_parquet(folder / "*.parquet")["user"])


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_store_that_fails_is_an_error_not_damage(link, folder, policy):
    url = link.put_folder(folder, "train")
    loader = load(url, {**link.options, "max_retries": 0}, on_bad_files=policy)
    link.fault = always("fail")
    with pytest.raises(LoaderError, match=r"cannot be read: .*max_retries in storage_options"):
        list(loader)


@pytest.mark.parametrize("change", ["damaged", "replaced", "removed"])
def test_an_object_that_is_not_the_listed_one_is_named_or_skipped(link, folder, change):
    url = link.put_folder(folder, "train")
    name = "train/part-00001.parquet"
    content = bytearray((folder / "part-00001.parquet").read_bytes())
    content[1000] ^= 1  # a page decodes with it to other values
    if change == "damaged":
        link.put(name, bytes(content))
    loaders = [load(url, link.options, on_bad_files=policy) for policy in ("raise", "skip")]
    if change == "replaced":
        link.put(name, bytes(content))
    elif change == "removed":
        link.remove(name)
    reason = {"damaged": "other bytes than", "replaced": "another object", "removed": "no such"}
    with pytest.raises(LoaderError, match=f"part-00001.parquet, row group 0.*{reason[change]}"):
        list(loaders[0])
    with pytest.warns(UserWarning, match="1 row groups could not be read"):
        assert sum(len(x["user"]) for x in loaders[1]) == ROWS * FILES
    assert loaders[1].skipped_files == [f"{url}/part-00001.parquet"]


def test_paths_without_a_store_are_errors_of_the_loader(link):
    with pytest.raises(LoaderError, match="No parquet file matches 's3://"):
        load(f"{link.url}/nothing", link.options)
    with pytest.raises(LoaderError, match="no such bucket"):
        load("s3://unknown/train", link.options)
    with pytest.raises(LoaderError, match="reader_kwargs"):
        load({"user": [1]}, names=["user"], reader_kwargs={"storage_options": {}})


def test_results_are_not_written_to_a_store(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = r"Expected a path of this machine. Received: 's3://b/out'"
    with pytest.raises(LoaderError, match=message):
        LoaderCheckpoint(load(folder), "s3://b/out")
    with pytest.raises(TrainingError, match=message):
        save_model(None, "s3://b/out")
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_options_of_other_types_are_refused_by_name():
    with pytest.raises(LoaderError, match=r"Expected 'timeout' .* Received: int"):
        KerasSequenceLoader("s3://ratings/raw", 2, storage_options={"timeout": 30})
