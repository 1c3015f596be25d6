"""Parquet that goes out: cut into files, shuffled over them, in memory that does not grow."""

from __future__ import annotations

import os

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from damaged import damage_rows

from workflow import Workflow, WorkflowError, ops, where
from workflow.data.sources import Source
from workflow.transform.parquet_sink import cut
from workflow.transform.pieces_in_order import in_order

ROWS = 10_000


@pytest.fixture
def rows():
    """Sorted by label, as data that was written class by class."""
    labels = np.arange(ROWS) >= ROWS * 3 // 4
    return pl.DataFrame(
        {"n": np.arange(ROWS), "label": labels, "tags": [[n, n] for n in range(ROWS)]}
    )


@pytest.fixture
def workflow(rows):
    return Workflow(["n", "label", "tags"] >> ops.LambdaOp(lambda column: column)).fit(rows)


def numbers(files):
    return [pl.read_parquet(file)["n"].to_numpy() for file in files]


@pytest.mark.parametrize("number", [int, np.int64])
def test_shuffled_files_hold_every_row_once(workflow, rows, tmp_path, number):
    settings = {"rows_per_file": number(1500), "seed": number(3)}
    files = workflow.transform_to_parquet(rows, tmp_path / "out", shuffle=True, **settings)
    assert [len(part) for part in numbers(files)] == [1500] * 6 + [1000]
    made = pl.read_parquet(files)
    assert not made["n"].equals(rows["n"])
    assert made.sort("n").equals(workflow.transform(rows).collect())
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"_schema.json", *(file.name for file in files)}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 5_000])
def test_a_full_disk_names_the_folder_and_not_the_data(
    workflow, rows, tmp_path, full_disk, size, shuffle
):
    """Polars calls the file that it cannot write invalid parquet."""
    message = (
        rf"^Expected to be able to write parquet to {tmp_path}/out\S*\. Received: .*File too large"
    )
    rows.write_parquet(tmp_path / "rows.parquet")
    for data in (rows, tmp_path / "rows.parquet"):
        with full_disk(size), pytest.raises(WorkflowError, match=message):
            workflow.transform_to_parquet(data, tmp_path / "out", shuffle=shuffle)
        assert not (tmp_path / "out").exists()
    assert workflow.transform_to_parquet(rows, tmp_path / "out", shuffle=shuffle)


def test_a_file_in_the_place_of_a_parent_is_reported(workflow, rows, tmp_path):
    (tmp_path / "file").write_text("")
    message = rf"write parquet to {tmp_path}/file/out\. Received: .*Not a directory: .*file/out.*remove it"
    with pytest.raises(WorkflowError, match=message):
        workflow.transform_to_parquet(rows, tmp_path / "file" / "out")


def test_a_link_that_leads_nowhere_is_reported(workflow, rows, tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "unmounted" / "out")
    with pytest.raises(WorkflowError, match=r"File exists: .*out'\. .*a link that leads nowhere"):
        workflow.transform_to_parquet(rows, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_order_is_a_function_of_the_seed(workflow, rows, tmp_path):
    def order(name, data, **settings):
        files = workflow.transform_to_parquet(
            data, tmp_path / name, rows_per_file=1500, shuffle=True, **settings
        )
        return np.concatenate(numbers(files)).tolist()

    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=900)
    first = order("first", rows, seed=3)
    assert order("again", tmp_path / "rows.parquet", seed=3) == first
    assert order("other", rows, seed=4) != first


def test_no_file_has_more_of_a_label_than_another(workflow, rows, tmp_path):
    def shares(name, **settings):
        files = workflow.transform_to_parquet(rows, tmp_path / name, rows_per_file=1000, **settings)
        return [pl.read_parquet(file)["label"].mean() for file in files]

    assert set(shares("in_order")) == {0.0, 0.5, 1.0}
    # 1000 draws of a quarter: five standard deviations are 0.07.
    assert all(abs(share - 0.25) < 0.07 for share in shares("shuffled", shuffle=True))


def test_every_row_may_come_to_every_place(workflow, rows, tmp_path):
    """A row's old place says nothing about its new one: no correlation, first to last."""
    files = workflow.transform_to_parquet(rows, tmp_path / "out", rows_per_file=900, shuffle=True)
    order = np.concatenate(numbers(files))
    assert abs(np.corrcoef(order, np.arange(ROWS))[0, 1]) < 5 / np.sqrt(ROWS)
    # Of 12 files a twelfth of the neighbours are in the same file.
    file_of = np.repeat(np.arange(12), 900)[:ROWS][np.argsort(order)]
    together = np.mean(file_of[1:] == file_of[:-1])
    assert abs(together - 1 / 12) < 5 * np.sqrt(1 / 12 / ROWS)


def test_a_shuffle_opens_each_of_its_files_once(workflow, rows, tmp_path, monkeypatch):
    """Opened for each bucket anew, a file would be read as often as there are files."""
    opened = []
    monkeypatch.setattr(
        pa, "memory_map", lambda file, map_=pa.memory_map: opened.append(file) or map_(file)
    )
    workflow.transform_to_parquet(rows, tmp_path / "out", rows_per_file=900, shuffle=True)
    assert len(opened) == len(set(opened)) == 12


def test_a_shuffle_of_no_rows_is_a_file_without_rows(workflow, rows, tmp_path):
    [file] = workflow.transform_to_parquet(rows.clear(), tmp_path / "out", shuffle=True)
    assert pl.read_parquet(file).equals(workflow.transform(rows.clear()).collect())


@pytest.mark.parametrize("seed", [-1, 0.5, "a"])
def test_a_seed_that_is_none_is_refused(workflow, rows, tmp_path, seed):
    with pytest.raises(WorkflowError, match=r"seed from 0\. Received"):
        workflow.transform_to_parquet(rows, tmp_path / "out", shuffle=True, seed=seed)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("group", [1, 7, 1000, ROWS])
def test_parquet_is_cut_between_row_groups(rows, tmp_path, group):
    for number, part in enumerate([rows[:4000], rows[4000:4000], rows[4000:]]):
        size = min(group, 500) if number == 0 else group
        part.write_parquet(tmp_path / f"{number}.parquet", row_group_size=size)
    cuts = [piece.collect() for piece in Source.of(tmp_path).pieces(1200)]
    assert pl.concat(cuts).equals(rows)
    assert max(cut.height for cut in cuts) <= max(1200, group)
    assert len(cuts) <= 2 * ROWS / min(1200, max(group, 500)) + 2


def test_a_row_group_longer_than_a_piece_gives_the_same(tmp_path, monkeypatch, rows, workflow):
    monkeypatch.setattr("workflow.transform.pieces_in_order.CPU_ROWS", 700)
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=3000)
    files = workflow.transform_to_parquet(tmp_path / "rows.parquet", tmp_path / "out")
    assert pl.read_parquet(files).equals(workflow.transform(rows).collect())


def test_a_file_that_breaks_on_the_way_leaves_nothing(rows, workflow, tmp_path):
    rows.write_parquet(tmp_path / "0.parquet")
    rows.write_parquet(tmp_path / "1.parquet")
    damage_rows(tmp_path / "1.parquet")
    with pytest.raises(WorkflowError, match=r"1\.parquet is damaged in row group 0\."):
        workflow.transform_to_parquet(tmp_path / "*.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_error_leaves_a_folder_of_the_user_and_removes_its_own(
    rows, workflow, tmp_path, shuffle
):
    rows.write_parquet(tmp_path / "rows.parquet")
    damage_rows(tmp_path / "rows.parquet")
    (tmp_path / "mine").mkdir()
    for folder in ("mine", "deep/own"):
        with pytest.raises(WorkflowError, match="is damaged in row group 0"):
            workflow.transform_to_parquet(
                tmp_path / "rows.parquet", tmp_path / folder, shuffle=shuffle
            )
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "rows.parquet"}
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_lazy_frame_and_whole_frame_operators_are_streamed(rows, tmp_path):
    first = Workflow(["n", "label"] >> ops.Filter(lambda columns: columns["n"] % 3 == 0)).fit(rows)
    want = first.transform(rows).collect()
    for name, data in {"lazy": rows.lazy(), "frame": rows}.items():
        files = first.transform_to_parquet(data, tmp_path / name, rows_per_file=1000)
        assert pl.read_parquet(files).equals(want)
        (file,) = first.transform_to_parquet(
            data.head(1).with_columns(n=1), tmp_path / f"no {name}"
        )
        assert pl.read_parquet(file).equals(rows.select("n", "label").clear())


def test_streamed_rows_keep_their_order_whatever_the_outputs_are(tmp_path):
    """Polars' optimizer does not see that the order of rows shows in a choice between constants."""
    numbers = np.random.default_rng(0).integers(0, 2, 300)
    rows = pl.DataFrame({"n": numbers})
    for start in range(0, len(rows), 3):
        rows[start : start + 3].write_parquet(tmp_path / f"{start:03}.parquet")
    made = ["n"] >> ops.Filter(lambda columns: columns["n"] >= 0)
    made = made >> ops.LambdaOp(lambda column: where(column == 1, 7, 5))
    (file,) = (
        Workflow(made).fit(rows).transform_to_parquet(tmp_path / "*.parquet", tmp_path / "out")
    )
    np.testing.assert_array_equal(pl.read_parquet(file)["n"], 5 + 2 * numbers)


def test_a_streamed_query_keeps_the_order_of_its_rows_whatever_the_outputs_are():
    numbers = np.random.default_rng(0).integers(0, 2, 300_000)
    rows = pl.DataFrame({"n": numbers})
    workflow = Workflow(["n"] >> ops.LambdaOp(lambda column: where(column == 1, 7, 5))).fit(rows)
    query = pl.concat([rows[:100_000].lazy(), rows[100_000:].lazy()])
    streamed = workflow.transform(query).collect(engine="streaming")
    np.testing.assert_array_equal(streamed["n"], 5 + 2 * numbers)


def test_frames_are_cut_exactly():
    frames = [pl.DataFrame({"n": range(a, b)}) for a, b in [(0, 2), (2, 2), (2, 9), (9, 10)]]
    parts = list(cut(frames, 3))
    assert [part.height for part in parts] == [3, 3, 3, 1]
    assert pl.concat(parts)["n"].to_list() == list(range(10))


def test_threads_keep_the_order_and_hand_on_an_error():
    def half(number):
        if number == 5:
            raise WorkflowError("five")
        return number / 2

    made = in_order(half, range(9), workers=3)
    assert [next(made) for _ in range(5)] == [0, 0.5, 1, 1.5, 2]
    with pytest.raises(WorkflowError, match="five"):
        next(made)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_folder_with_a_tilde_is_no_home(workflow, rows, tmp_path, monkeypatch, shuffle):
    monkeypatch.chdir(tmp_path)
    files = workflow.transform_to_parquet(rows, "~/out", rows_per_file=ROWS, shuffle=shuffle)
    assert [str(file) for file in files] == ["~/out/part-00000.parquet"]
    assert sorted(numbers([tmp_path / files[0]])[0]) == [*range(ROWS)]


def test_a_folder_that_is_not_utf8_is_an_error_that_says_so(workflow, rows, tmp_path):
    """It was "Object does not have a .write() method"."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(WorkflowError, match=r"path in UTF-8.*caf\\xe9.*Rename the file"):
        workflow.transform_to_parquet(rows, folder)
    assert not folder.exists()
