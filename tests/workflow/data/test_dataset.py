"""The files that every reader finds: in folders, patterns and lists, and in data sets of a run."""

from __future__ import annotations

import json

import polars as pl
import pytest

from loader import KerasSequenceLoader, LoaderError
from workflow import Workflow, WorkflowError, ops
from workflow.data.dataset import data_files
from workflow.data.sources import Source, parquet_files
from workflow.files.sealed import sealed


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"n": rows, "label": [0] * len(rows)}).write_parquet(path)


def numbers(data):
    """The rows that both readers find, which are the same."""
    fitted = Workflow(["n"]).fit(data).transform(data).collect()["n"].to_list()
    loader = KerasSequenceLoader(data, 1000, ["label"], cont_names=["n"], shuffle=False)
    assert [int(n) for x, _ in loader for n in x["n"].numpy()[:, 0]] == fitted
    return fitted


def refused(data):
    """The text with which both readers refuse the data."""
    with pytest.raises(WorkflowError) as error:
        Workflow(["n"]).fit(data)
    with pytest.raises(LoaderError) as other:
        KerasSequenceLoader(data, 1000, ["label"], cont_names=["n"])
    assert str(other.value).startswith(str(error.value).rstrip("."))
    return str(error.value)


@pytest.fixture
def plain(tmp_path):
    """Hive-style folders with what is no data among them."""
    folder = tmp_path / "plain"
    for name, n in {"year=1/b": 2, "year=1/a": 1, "year=2/a": 3, "year=2/month=1/a": 4}.items():
        write(folder / f"{name}.parquet", n)
    for name in (".a", "_a", "_old/a", ".ipynb_checkpoints/a", "year=1/_b", "year=2/.parts-1/a"):
        write(folder / f"{name}.parquet", 99)
    (folder / "_SUCCESS").touch()
    (folder / "notes.txt").write_text("no parquet")
    return folder


@pytest.fixture
def made(tmp_path):
    """Three files that a workflow wrote, of the rows 0 to 5."""
    rows = pl.DataFrame({"n": range(6), "label": [0] * 6})
    node = ["n"] >> ops.AddTags(["continuous"])
    workflow = Workflow(node + ["label"]).fit(rows)
    workflow.transform_to_parquet(rows, tmp_path / "made", rows_per_file=2)
    return tmp_path / "made"


def test_folders_are_read_to_the_bottom_in_order(plain):
    assert numbers(plain) == [1, 2, 3, 4]
    assert numbers(str(plain / "**" / "*.parquet")) == [1, 2, 3, 4]


@pytest.mark.parametrize("pattern", ["year=*", "*=*", "**", "year=*/**"])
def test_a_pattern_of_folders_and_files_gives_each_file_once(plain, pattern):
    (plain / "notes.txt").unlink()
    assert numbers(str(plain / pattern)) == [1, 2, 3, 4]


def test_what_is_named_to_the_letter_may_be_hidden(plain):
    assert numbers(plain / "_old") == [99]
    assert numbers(str(plain / "_old" / "*.parquet")) == [99]
    assert numbers(plain / "_a.parquet") == [99]
    assert numbers([plain / "_a.parquet", plain / "year=2"]) == [99, 3, 4]


def test_a_folder_with_hidden_files_alone_says_so(tmp_path):
    write(tmp_path / "_a.parquet", 1)
    for data in (tmp_path, str(tmp_path / "*"), str(tmp_path / "*.parquet")):
        assert 'names that begin with "." or "_" are ignored' in refused(data)


def test_a_data_set_is_the_files_that_it_names(made):
    paths = sorted(made.glob("part-*"))
    for data in (made, str(made / "*"), str(made / "*.parquet"), made.parent, paths):
        assert numbers(data) == list(range(6))
    assert numbers(str(made / "part-0000[12].parquet")) == [2, 3, 4, 5]
    assert numbers(paths[1]) == [2, 3]
    assert numbers(made.rename(made.with_name("moved"))) == list(range(6))


def test_a_missing_file_is_named(made):
    (made / "part-00001.parquet").unlink()
    for data in (made, str(made / "*.parquet"), str(made / "*"), made.parent):
        text = refused(data)
        assert "made/part-00001.parquet with" in text
        assert "no such file" in text
        assert "Copy the whole folder again, or write it again" in text
    # What is left may be asked for by name.
    assert numbers([made / "part-00000.parquet", made / "part-00002.parquet"]) == [0, 1, 4, 5]


def test_a_file_of_another_size_is_named(made):
    file = made / "part-00001.parquet"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-10])
    assert f"part-00001.parquet with {size} bytes" in refused(made)
    assert f"Received: {size - 10} bytes" in refused(file)


def test_a_file_of_other_rows_is_named(made):
    """Though as long as it was: here the manifest is the one that is changed."""
    file = made / "part-00001.parquet"
    document = json.loads((made / "_schema.json").read_text())
    document.pop("sum")
    document["files"][file.name]["rows"] = 3
    (made / "_schema.json").write_bytes(sealed(document))
    assert f"Expected {file} with 3 rows" in refused(made)
    assert "Received: 2 rows" in refused(made)


def test_the_loader_skips_what_is_not_whole_when_it_is_to(made):
    (made / "part-00000.parquet").unlink()
    with pytest.warns(UserWarning, match=r"part-00000.parquet.*no such file"):
        loader = KerasSequenceLoader(
            made, 10, ["label"], cont_names=["n"], on_bad_files="skip", shuffle=False
        )
    assert [int(n) for x, _ in loader for n in x["n"].numpy()[:, 0]] == [2, 3, 4, 5]


@pytest.mark.parametrize("name", ["more.parquet", "deeper/more.parquet"])
def test_a_file_that_no_run_wrote_is_refused_with_what_to_do(made, name):
    write(made / name, 6)
    text = refused(made)
    assert f"Received: {made / name}." in text
    assert "move it to its own folder and pass both paths in a list" in text
    (made / name).rename(made.parent / "more.parquet")
    assert numbers([made, made.parent / "more.parquet"]) == list(range(7))


def test_a_file_that_no_run_wrote_is_refused_by_pattern_and_by_name(made):
    write(made / "more.parquet", 6)
    for data in (str(made / "*.parquet"), made / "more.parquet", [*made.glob("*.parquet")]):
        assert f"Received: {made / 'more.parquet'}." in refused(data)


def test_raw_data_with_its_transformed_data_inside_is_refused(made):
    write(made.parent / "raw.parquet", 0)
    for data in (made.parent, str(made.parent / "**")):
        text = refused(data)
        assert f"both, {made / 'part-00000.parquet'} and {made.parent / 'raw.parquet'}" in text
    assert numbers(str(made.parent / "*.parquet")) == [0]


@pytest.mark.parametrize(
    ("link", "target", "again", "same"),
    [
        ("z.parquet", "a.parquet", "z.parquet", "a.parquet"),
        ("deep/z.parquet", "../a.parquet", "deep/z.parquet", "a.parquet"),
        ("latest", "deep", "latest/b.parquet", "deep/b.parquet"),
    ],
)
def test_a_file_that_a_link_names_again_is_refused(tmp_path, link, target, again, same):
    folder = tmp_path / "plain"
    write(folder / "a.parquet", 1)
    write(folder / "deep" / "b.parquet", 2)
    (folder / link).symlink_to(target)
    for data in (folder, str(folder / "**"), str(folder / "**/*.parquet")):
        text = refused(data)
        assert "which are one file by a link. Remove the link" in text
        assert str(folder / again) in text
        assert str(folder / same) in text
    (folder / link).unlink()
    assert numbers(folder) == [1, 2]


def test_links_by_which_rows_differ_or_whose_target_is_elsewhere_are_files(tmp_path):
    """The second is how stores by hash keep two files of one content."""
    folder = tmp_path / "keyed"
    write(folder / "year=1" / "a.parquet", 1)
    (folder / "year=2").symlink_to("year=1")
    frame = Workflow(["n", "year"]).fit(folder).transform(folder).collect()
    assert frame.to_dict(as_series=False) == {"n": [1, 1], "year": [1, 2]}
    write(tmp_path / "by_hash" / "f00", 7)
    for name in ("a", "b"):
        (tmp_path / "linked").mkdir(exist_ok=True)
        (tmp_path / "linked" / f"{name}.parquet").symlink_to("../by_hash/f00")
    assert numbers(tmp_path / "linked") == [7, 7]


def test_a_folder_with_links_to_itself_is_refused(tmp_path):
    folder = tmp_path / "plain"
    write(folder / "deep" / "a.parquet", 1)
    # Of two, each doubles the folders of every level.
    for name in ("again", "once_more"):
        (folder / "deep" / name).symlink_to("..")
    assert f"{folder / 'deep' / 'again'}, a link to {folder}" in refused(folder)


@pytest.mark.parametrize("inside", ["", "out", "deep/out"])
def test_a_folder_inside_the_data_is_no_place_to_write_to(plain, inside, monkeypatch):
    workflow = Workflow(["n"]).fit(plain)
    before = sorted(plain.rglob("*"))
    monkeypatch.chdir(plain.parent)
    for make in (
        lambda: plain,
        lambda: "plain",
        lambda: [plain / "year=1", plain],
        lambda: iter([plain]),
    ):
        for write_to in (workflow.transform_to_parquet, workflow.fit_transform_to_parquet):
            with pytest.raises(WorkflowError, match="a folder outside of the data"):
                write_to(make(), plain / inside)
    assert sorted(plain.rglob("*")) == before


def test_the_columns_come_with_the_files(made):
    assert Source.of(made).schema["n"].tags == ("continuous",)
    assert list(KerasSequenceLoader(made, 2, ["label"]).element_spec[0]) == ["n"]


def edited(change):
    def spoil(raw):
        document = json.loads(raw)
        document.pop("sum")
        change(document)
        return sealed(document)

    return spoil


def entry(name, value):
    return edited(lambda d: d.update(files={name: value}))


SPOILT = {
    "empty": lambda _: b"",
    "torn": lambda raw: raw[: len(raw) // 2],
    "a list": lambda _: b"[]",
    "a digit": lambda raw: raw.replace(b'"rows": 2', b'"rows": 3', 1),
    "a tag": lambda raw: raw.replace(b"continuous", b"continuouz"),
    "white space": lambda raw: raw.replace(b"\n ", b"\n\n", 1),
    "no sum": lambda raw: json.dumps({**json.loads(raw), "sum": None}).encode(),
    "another format": edited(lambda d: d.update(format=1)),
    "no files": edited(lambda d: d.update(files={})),
    "files of a list": edited(lambda d: d.update(files=["part-00000.parquet"])),
    "a path": entry("../rows.parquet", {"rows": 2, "bytes": 3}),
    "a hidden file": entry(".rows.parquet", {"rows": 2, "bytes": 3}),
    "no parquet": entry("rows.csv", {"rows": 2, "bytes": 3}),
    "rows that are true": entry("part-00000.parquet", {"rows": True, "bytes": 3}),
    "rows below none": entry("part-00000.parquet", {"rows": -1, "bytes": 3}),
    "no bytes": entry("part-00000.parquet", {"rows": 2}),
    "columns of a text": edited(lambda d: d.update(columns="n")),
    "more keys": edited(lambda d: d.update(more=1)),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_manifest_that_is_none(made, name):
    path = made / "_schema.json"
    path.write_bytes(SPOILT[name](path.read_bytes()))
    text = refused(made)
    assert f"transform_to_parquet writes them, in {path}. Received: " in text
    assert "remove the file to read the folder as plain parquet" in text
    path.unlink()
    assert numbers(made) == list(range(6))


def test_any_changed_byte_of_a_manifest_is_refused(made):
    path = made / "_schema.json"
    raw = path.read_bytes()
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :])
        with pytest.raises(WorkflowError, match=r"_schema\.json"):
            data_files(made)


def test_a_folder_that_cannot_be_listed_is_no_empty_one(plain, monkeypatch):
    """Rows would be missing without a word."""
    listed = type(plain).iterdir

    def closed(path):
        if path.name == "month=1":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(type(plain), "iterdir", closed)
    assert "month=1 cannot be listed: Permission denied." in refused(plain)


@pytest.mark.parametrize("pattern", ["**/*.parquet", "*/*/*.parquet", "year=2/month=1/*"])
def test_a_folder_that_a_pattern_cannot_list_is_no_empty_one(plain, closed, pattern):
    """glob passes over it."""
    closed(plain / "year=2/month=1", plain / "_old")
    assert "month=1 cannot be listed: Permission denied." in refused(str(plain / pattern))
    assert numbers(str(plain / "year=1" / "*.parquet")) == [1, 2]


def test_paths_of_a_list_keep_their_order(plain, made):
    assert [file.path.name for file in parquet_files([plain / "year=2", made])] == [
        "a.parquet",
        "a.parquet",
        *(f"part-0000{n}.parquet" for n in range(3)),
    ]


def test_folders_of_two_fits_are_no_data_set(tmp_path):
    """An id stands for one value in the first folder, and for another one in the second."""
    months = {"may": ["a", "b", "a"], "june": ["c", "d", "c"]}
    for month, users in months.items():
        rows = {"n": users, "label": [0, 1, 0]}
        fitted = Workflow((["n"] >> ops.Categorify()) + "label").fit(rows)
        fitted.transform_to_parquet(rows, tmp_path / month)
    both = [tmp_path / month for month in months]
    assert "in which another fit has made n: equal ids stand for other values" in refused(both)
    fitted.transform_to_parquet({"n": months["may"], "label": [0, 1, 0]}, tmp_path / "again")
    assert len(numbers([tmp_path / "again", tmp_path / "june"])) == 6


LOGS = {
    "a Delta table": "_delta_log/00000000000000000000.json",
    "an Iceberg table": "metadata/00000-a72ef4c4-e78c-4588-80a7-75e04280322b.metadata.json",
    "of Hadoop, an Iceberg table": "metadata/v2.metadata.json",
    "a Hudi table": ".hoodie/hoodie.properties",
}


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("place", [".", "table", "table/day=1", "table/*/*.parquet"])
def test_the_folder_of_a_table_with_a_log_is_refused(tmp_path, kind, place):
    table = tmp_path / "lake" / "table"
    for day in ("day=1", "day=2"):
        write(table / day / "a.parquet", 1, 2)
    log = table / LOGS[kind]
    log.parent.mkdir()
    log.touch()
    text = refused(str(tmp_path / "lake" / place))
    assert f"Received: {table}, {kind.removeprefix('of Hadoop, ')}, whose files" in text
    # Files by their names are those that a reader of the log has chosen.
    assert numbers([table / "day=1" / "a.parquet"]) == [1, 2]


def test_a_data_set_inside_the_folder_of_a_table_is_the_files_that_it_names(made):
    (made.parent / "_delta_log").mkdir()
    assert numbers(made) == [0, 1, 2, 3, 4, 5]


def test_a_folder_of_other_metadata_is_no_table(tmp_path):
    write(tmp_path / "data" / "a.parquet", 1)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "columns.metadata.json").touch()
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("name", ["000000_0", "x.parq", "y.pq", "Z.PARQUET"])
def test_parquet_under_another_name_is_refused_in_a_folder(tmp_path, name):
    write(tmp_path / "a.parquet", 1)
    write(tmp_path / "day=1" / name, 2)
    assert f"Received: {tmp_path / 'day=1' / name}, which is parquet" in refused(tmp_path)
    assert numbers(tmp_path / "day=1" / name) == [2]
    assert numbers(str(tmp_path / "day=1" / "*")) == [2]


def test_names_that_no_writer_gives_to_parquet_are_no_data(tmp_path):
    for name in ("a.parquet", "a.parquet.tmp", "a.parquet.bak"):
        write(tmp_path / name, 1)
    (tmp_path / "README").write_text("PAR")
    (tmp_path / "b.parq").touch()
    assert numbers(tmp_path) == [1]
