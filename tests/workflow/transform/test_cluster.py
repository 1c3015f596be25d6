"""Fit and transform on a cluster of two processes: the state and the files of one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from damaged import damage_rows
from killed_workers import kill_in

from workflow import Workflow, WorkflowError, ops
from workflow.data.sources import Source
from workflow.transform.cluster import Work, write_files
from workflow.transform.parquet_sink import ParquetSink

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("cluster")]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(11):
        frame = pl.DataFrame(
            {
                "user": random.zipf(1.3, 500) % 300,
                "tags": [["a", "b"][: n % 3] for n in random.integers(0, 3, 500)],
                "price": random.normal(100, 5, 500),
                "rating": random.integers(1, 6, 500).astype(float),
            }
        )
        frame.write_parquet(folder / f"{number:02}.parquet")
    return folder


def make():
    clipped = ["price"] >> ops.LambdaOp(lambda price: price.clip(95.0, 105.0))
    encoded = ["user"] >> ops.TargetEncoding("rating")
    return Workflow((["user", "tags"] >> ops.Categorify()) + (clipped >> ops.Normalize()) + encoded)


def test_a_cluster_learns_what_one_machine_learns(client, folder):
    there, here = make().fit(folder, client=client), make().fit(folder)
    assert there.output_schema == here.output_schema
    made, want = there.transform(folder).collect(), here.transform(folder).collect()
    assert made.select("user", "tags").equals(want.select("user", "tags"))
    for name in ("price", "TE_user_rating"):
        np.testing.assert_allclose(made[name], want[name], rtol=1e-5)


def test_what_needs_all_rows_is_learnt_here(client, folder):
    sessions = ["user", "price"] >> ops.Groupby("user", aggs={"price": "count"})
    there = Workflow(sessions >> ops.Categorify()).fit(folder, client=client)
    here = Workflow(sessions >> ops.Categorify()).fit(folder)
    made, want = there.transform(folder).collect(), here.transform(folder).collect()
    assert made.sort(pl.all()).equals(want.sort(pl.all()))


def test_training_data_comes_from_what_the_cluster_has_learnt(client, folder, tmp_path):
    want = make().fit_transform(folder).collect()
    made = make().fit_transform(folder, client=client).collect()
    files = make().fit_transform_to_parquet(folder, tmp_path / "out", client=client)
    for rows in (made, pl.read_parquet(files)):
        assert rows["user"].equals(want["user"])
        np.testing.assert_allclose(rows["TE_user_rating"], want["TE_user_rating"], rtol=1e-5)


def contents(files):
    """The rows of a folder's files by name, and the schema beside them."""
    rows = {file.name: pl.read_parquet(file) for file in files}
    return rows, (files[0].parent / "_schema.json").read_text()


@pytest.mark.parametrize("settings", [{}, {"shuffle": True, "seed": 3, "compression": "zstd"}])
def test_a_cluster_writes_the_files_that_one_machine_writes(client, folder, tmp_path, settings):
    workflow = make().fit(folder)
    here, there = tmp_path / "here", tmp_path / "there"
    want = contents(workflow.transform_to_parquet(folder, here, rows_per_file=700, **settings))
    files = workflow.transform_to_parquet(
        folder, there, rows_per_file=700, client=client, **settings
    )
    made = contents(files)
    assert made[1] == want[1]
    assert list(made[0]) == list(want[0])
    assert all(made[0][name].equals(rows) for name, rows in want[0].items())
    assert {path.name for path in there.iterdir()} == {"_schema.json", *made[0]}


def write_half(_, frame, scratch, number):
    """In a worker: begin a file."""
    path = scratch / f"part-{number:05}.parquet"
    frame.write_parquet(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("before", [None, write_half])
def test_a_worker_killed_in_transform_loses_nothing(client, folder, tmp_path, before):
    workflow = make().fit(folder)
    here, there = tmp_path / "here", tmp_path / "there"
    want = [p.read_bytes() for p in workflow.transform_to_parquet(folder, here, rows_per_file=700)]
    sink, marker = "workflow.transform.parquet_sink", tmp_path / "killed"
    kill_in(client, sink, "ParquetSink.write_file", marker, before)
    files = workflow.transform_to_parquet(folder, there, rows_per_file=700, client=client)
    assert [path.read_bytes() for path in files] == want
    assert marker.exists()
    assert {path.name for path in there.iterdir()} == {"_schema.json", *(p.name for p in files)}
    client.wait_for_workers(2, timeout=600)


def test_two_workers_with_one_task_never_write_one_file(folder, tmp_path, monkeypatch):
    # A worker that the cluster takes for lost may go on, beside the one that replaces it.
    workflow, written, write = make().fit(folder), [], ParquetSink.write_file

    def recorded(sink, frame, scratch, number):
        written.append(write(sink, frame, scratch, number))
        return written[-1]

    monkeypatch.setattr(ParquetSink, "write_file", recorded)
    files = Source.of(folder).select(workflow.program.inputs.names).files
    sink = ParquetSink(tmp_path / "out", 2000, "snappy")
    for _ in range(2):
        work = Work(workflow.program, files, is_as_fitted=True)
        made = write_files(work, [0, 1], sink, tmp_path, "cpu")
    assert len(set(written)) == 4
    assert [path.name for path in made] == ["part-00000.parquet", "part-00001.parquet"]


def test_a_folder_like_a_pattern_is_shuffled_on_the_cluster(client, folder, tmp_path):
    """Files for the shuffle's second pass were sought by a pattern, which matches none of them."""
    workflow = make().fit(folder)
    order = {"shuffle": True, "seed": 1}
    want = workflow.transform_to_parquet(folder, tmp_path / "here", **order)
    files = workflow.transform_to_parquet(folder, tmp_path / "[a]", client=client, **order)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in want]


def test_training_data_without_targets_is_written_on_the_cluster(client, folder, tmp_path):
    def ids():
        return Workflow(["user", "tags"] >> ops.Categorify())

    files = ids().fit_transform_to_parquet(folder, tmp_path / "out", client=client)
    assert pl.read_parquet(files).equals(ids().fit_transform(folder).collect())


def test_whole_floats_are_integers_on_a_cluster_too(client, folder, tmp_path):
    workflow = Workflow(["user"] >> ops.Categorify()).fit(folder)
    floats = tmp_path / "floats"
    floats.mkdir()
    for file in folder.glob("*.parquet"):
        pl.read_parquet(file).cast({"user": pl.Float64}).write_parquet(floats / file.name)
    want = workflow.transform(folder).collect()
    files = workflow.transform_to_parquet(floats, tmp_path / "out", client=client)
    assert pl.read_parquet(files).equals(want)
    learnt = Workflow(["user"] >> ops.Categorify()).fit(floats, client=client)
    assert learnt.transform(floats).collect().equals(want)


def test_keys_in_folders_and_files_of_two_types_are_read_by_workers_too(client, tmp_path):
    for number in range(4):
        path = tmp_path / "raw" / f"shop={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        narrow = {"user": pl.Int32} if number % 2 else {}
        pl.DataFrame({"user": [number, 7]}).cast(narrow).write_parquet(path)
    workflow = Workflow(["user", "shop"] >> ops.Categorify())
    workflow.fit(tmp_path / "raw", client=client)
    workflow.transform_to_parquet(tmp_path / "raw", tmp_path / "made", client=client)
    # Most frequent first, ties by value: user 7 comes four times, shops twice each; ids begin at 3.
    made = pl.read_parquet(tmp_path / "made" / "*.parquet")
    assert made["user"].to_list() == [4, 3, 6, 3, 5, 3, 7, 3]
    assert made["shop"].to_list() == [3, 3, 3, 3, 4, 4, 4, 4]


def test_filtered_rows_are_written_by_this_machine(client, folder, tmp_path):
    cheap = ["user", "price"] >> ops.Filter(lambda columns: columns["price"] < 100)
    workflow = Workflow(cheap).fit(folder)
    files = workflow.transform_to_parquet(folder, tmp_path / "out", client=client)
    assert pl.read_parquet(files).equals(workflow.transform(folder).collect())


def test_a_worker_that_fails_leaves_nothing_behind(client, folder, tmp_path):
    workflow = make().fit(folder)
    damage_rows(folder / "05.parquet")
    with pytest.raises(WorkflowError, match=r"05\.parquet is damaged in row group 0\."):
        workflow.transform_to_parquet(folder, tmp_path / "out", rows_per_file=100, client=client)
    assert not (tmp_path / "out").exists()


def test_an_error_on_a_worker_is_our_error(client, folder):
    pl.DataFrame({"user": [1]}).write_parquet(folder / "99.parquet")
    damage_rows(folder / "99.parquet")
    with pytest.raises(WorkflowError, match=r"99\.parquet is damaged in row group 0\."):
        Workflow(["user"] >> ops.Categorify()).fit(folder, client=client)


def test_rows_that_only_this_machine_has_are_refused(client):
    workflow = Workflow(["user"] >> ops.Categorify())
    with pytest.raises(WorkflowError, match=r"workers can read\. Received: a frame"):
        workflow.fit({"user": [1]}, client=client)
    workflow.fit({"user": [1]})
    with pytest.raises(WorkflowError, match=r"workers can read\. Received: a frame"):
        workflow.transform_to_parquet({"user": [1]}, "out", client=client)


@pytest.mark.parametrize("given", ["tcp://127.0.0.1:8786", 3])
def test_what_is_no_client_is_refused(given, folder, tmp_path):
    workflow = Workflow(["user"] >> ops.Categorify())
    with pytest.raises(WorkflowError, match=r"dask\.distributed\.Client\(address\)"):
        workflow.fit(folder, client=given)
    with pytest.raises(WorkflowError, match=r"dask\.distributed\.Client\(address\)"):
        workflow.fit(folder).transform_to_parquet(folder, tmp_path / "out", client=given)


def count_tables():
    """In a worker: count the tables that its tasks make of vocabularies."""
    from workflow.expressions.polars import tables as polars_tables

    make, polars_tables.made = polars_tables.cuckoo_table, []

    def counted(keys):
        polars_tables.made += [1] * (len(keys) > 100)
        return make(keys)

    polars_tables.cuckoo_table = counted


def tables_made():
    """In a worker: how many, and count no further."""
    from workflow.expressions.polars import tables as polars_tables
    from workflow.expressions.tables import cuckoo

    polars_tables.cuckoo_table = cuckoo.cuckoo_table
    return len(polars_tables.made)


def test_a_worker_makes_a_table_once_for_all_of_its_files(client, tmp_path):
    texts = [f"value {n:03}" for n in range(500)]
    for number in range(12):
        pl.DataFrame({"a": texts}).write_parquet(tmp_path / f"{number:02}.parquet")
    workflow = Workflow(["a"] >> ops.Categorify()).fit({"a": texts})
    client.run(count_tables)
    files = workflow.transform_to_parquet(
        tmp_path, tmp_path.parent / "out", rows_per_file=300, client=client
    )
    assert max(client.run(tables_made).values()) == 1
    assert pl.read_parquet(files)["a"].to_list() == list(range(3, 503)) * 12


@pytest.fixture
def own_path(monkeypatch, tmp_path):
    """A folder that this process alone can see: workers have another working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("/proc/self/cwd")


def test_files_that_a_worker_cannot_read_are_named_with_the_worker(client, folder, own_path):
    message = (
        rf"all workers can read.*Received: {own_path}/data/00.parquet, which worker tcp://\S+ cannot "
        "read: No such file or directory"
    )
    with pytest.raises(WorkflowError, match=message):
        make().fit(own_path / folder.name, client=client)
    fitted = make().fit(folder)
    with pytest.raises(WorkflowError, match=message):
        fitted.transform_to_parquet(own_path / folder.name, folder.parent / "out", client=client)


def test_a_folder_that_a_worker_cannot_write_is_named_with_the_worker(client, folder, own_path):
    message = rf"all workers can write.*Received: {own_path}/out, which worker tcp://\S+ cannot write: No such"
    with pytest.raises(WorkflowError, match=message):
        make().fit(folder).transform_to_parquet(folder, own_path / "out", client=client)
    assert not [*folder.parent.glob("out/*")]


def test_text_and_frames_are_refused_before_they_are_read(client, tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("user,rating\n1,2,3\n")  # a bad line: reading it is another error
    workflow = Workflow(["user"] >> ops.Categorify())
    for call in (
        lambda data: workflow.fit(data, client=client),
        lambda data: workflow.fit_transform(data, client=client),
        lambda data: workflow.fit_transform_to_parquet(data, tmp_path / "out", client=client),
    ):
        with pytest.raises(WorkflowError, match=f"paths of parquet.*Received: {path}"):
            call(path)
        with pytest.raises(WorkflowError, match=r"paths of parquet.*Received: a frame in this"):
            call(pl.LazyFrame({"user": [1]}).map_batches(lambda _: pytest.fail("it is read")))
    path.write_text("user\n1\n")
    with pytest.raises(WorkflowError, match=f"paths of parquet.*Received: {path}"):
        workflow.fit(iter([path]), client=client)
