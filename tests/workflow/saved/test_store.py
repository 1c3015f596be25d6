"""Saving and loading: complete or not at all, and nothing else in the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from workflow import Workflow, WorkflowError, WorkflowFormatError, ops
from workflow.expressions.program import safetensors_file
from workflow.files.sealed import sealed, unsealed


def test_a_loaded_workflow_is_the_saved_one(fitted, ratings, tmp_path):
    fitted.output_dtypes["userId"] = "int32"
    fitted.save(tmp_path / "saved")
    loaded = Workflow.load(str(tmp_path / "saved"))
    assert loaded.output_schema == fitted.output_schema
    assert loaded.input_schema == fitted.input_schema
    assert loaded.transform(ratings).collect().equals(fitted.transform(ratings).collect())
    assert [node.label for node in loaded.nodes] == [node.label for node in fitted.nodes]


def test_every_kind_of_node_is_saved(ratings, tmp_path):
    ids = ["userId", "movieId"] >> ops.Categorify()
    shared = (ids - "userId") + ids["userId"] + (["rating"] >> ops.FillMissing()) + ids
    workflow = Workflow(shared).fit(ratings)
    workflow.save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    assert len(loaded.nodes) == len(workflow.nodes)
    assert loaded.transform(ratings).collect().equals(workflow.transform(ratings).collect())


def test_saving_holds_two_files_and_no_code(fitted, tmp_path):
    fitted.save(tmp_path / "deep" / "saved")
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"saved"}
    files = {p.name for p in (tmp_path / "deep" / "saved").iterdir()}
    text = (tmp_path / "deep" / "saved" / "workflow.json").read_text()
    assert files == {"workflow.json", f"state-{json.loads(text)['state'][:16]}.safetensors"}
    assert json.loads(text)["format"] == 2
    assert "lambda" not in text
    assert "workflow.ops" not in text


def test_saving_over_a_workflow_replaces_it(fitted, ratings, tmp_path):
    fitted.save(tmp_path / "saved")
    fitted.fit(ratings[:1]).save(tmp_path / "saved")
    loaded = Workflow.load(tmp_path / "saved")
    assert loaded.transform(ratings).collect().equals(fitted.transform(ratings).collect())
    assert {p.name for p in tmp_path.iterdir()} == {"saved"}


def test_a_save_that_fails_leaves_the_old_one(fitted, ratings, tmp_path, monkeypatch):
    fitted.save(tmp_path / "saved")
    before = {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workflow.saved.saved_files.write_arrays", full)
    with pytest.raises(WorkflowError, match=r"cannot be saved into '.*saved': No space left"):
        fitted.fit(ratings[:1]).save(tmp_path / "saved")
    assert {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir()} == before
    assert {p.name for p in tmp_path.iterdir()} == {"saved"}


def test_a_folder_with_other_files_is_left_alone(fitted, tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "thesis.txt").write_text("years of work")
    with pytest.raises(WorkflowError, match="holds other files"):
        fitted.save(tmp_path / "saved")
    with pytest.raises(WorkflowError, match=r"thesis\.txt is a file"):
        fitted.save(tmp_path / "saved" / "thesis.txt")
    assert (tmp_path / "saved" / "thesis.txt").read_text() == "years of work"


def test_a_folder_with_other_files_is_refused_before_the_data_is_read(tmp_path):
    """A fit may take hours."""
    (tmp_path / "thesis.txt").write_text("years of work")
    workflow = Workflow(["age"] >> ops.Normalize())
    for folder, words in ((tmp_path, "holds other files"), (tmp_path / "thesis.txt", "is a file")):
        with pytest.raises(WorkflowError, match=words):
            workflow.fit_transform_to_parquet("missing.parquet", tmp_path / "out", save_to=folder)


@pytest.mark.parametrize("inside", ["", "data"])
def test_a_workflow_in_the_folder_of_its_data_is_refused_before_the_data_is_read(tmp_path, inside):
    place = tmp_path / "both"
    with pytest.raises(
        WorkflowError, match=r"for the workflow alone\. Received: .*both for it, and"
    ):
        Workflow(["age"] >> ops.Normalize()).fit_transform_to_parquet(
            "missing.parquet", place / inside, save_to=place
        )
    assert not place.exists()


def test_a_link_to_a_folder_is_followed(fitted, ratings, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fitted.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Workflow.load(tmp_path / "link").transform(ratings).collect().height == 6


def test_an_empty_working_folder_can_be_saved_into(fitted, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fitted.save(Path())
    assert (tmp_path / "here" / "workflow.json").is_file()


def half(pattern):
    return lambda saved: [path.unlink() for path in saved.glob(pattern)]


def of_nvtabular(saved):
    (saved / "workflow.pkl").write_bytes(b"cos\nsystem\n")


def newer(saved):
    document = unsealed((saved / "workflow.json").read_bytes(), "")
    (saved / "workflow.json").write_bytes(sealed({**document, "format": 3, "more": []}))


def as_folder(saved):
    (saved / "workflow.json").unlink()
    (saved / "workflow.json").mkdir()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "Received: .*saved', which does not exist. .*ensemble fit.*--workflow"),
        (half("workflow.json"), r"not a saved workflow: it has no workflow\.json\."),
        (half("state-*"), r"it has no state-[0-9a-f]{16}\.safetensors\. Copy the whole folder"),
        (of_nvtabular, "pickled workflow of NVTabular"),
        (newer, "format is 3, which a newer version wrote; this one reads format 2"),
        (as_folder, r"workflow\.json: expected a file"),
    ],
)
def test_what_is_no_whole_workflow_says_why(fitted, tmp_path, spoil, message):
    fitted.save(tmp_path / "saved")
    spoil(tmp_path / "saved")
    with pytest.raises(WorkflowFormatError, match=message):
        Workflow.load(tmp_path / "saved")


def test_a_file_is_no_saved_workflow(fitted, tmp_path):
    fitted.save(tmp_path)
    with pytest.raises(WorkflowFormatError, match=r"workflow\.json', which is a file"):
        Workflow.load(tmp_path / "workflow.json")
    with pytest.raises(WorkflowFormatError, match="cannot be read: File name too long"):
        Workflow.load("x" * 300)


@pytest.mark.parametrize("folder", [None, 3, "", "a\0b", b"x"])
def test_what_is_no_path_is_refused(fitted, folder):
    for use in (fitted.save, Workflow.load):
        with pytest.raises(WorkflowError, match=r"Expected the path of a folder\. Received: "):
            use(folder)


@pytest.mark.parametrize("folder", ["/proc/nobody/can/write", "x" * 300, "file/below"])
def test_a_folder_that_cannot_be_written_is_named(fitted, tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkflowError, match="The workflow cannot be saved into '") as error:
        fitted.save(tmp_path / folder)
    assert isinstance(error.value.__cause__, OSError)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_loaded_vocabulary_is_a_view_of_the_file(tmp_path):
    workflow = Workflow(["c"] >> ops.Categorify()).fit({"c": np.arange(1000)})
    workflow.save(tmp_path / "saved")
    [state] = Workflow.load(tmp_path / "saved").states.values()
    base = max((column.values for column in state.values()), key=len)
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_numpy_settings_are_saved(ratings, tmp_path):
    node = ["rating"] >> ops.FillMissing(np.float32(0.5)) >> ops.Normalize(np.float64)
    Workflow(node + (["userId"] >> ops.Categorify(dtype=np.int32))).fit(ratings).save(
        tmp_path / "saved"
    )
    assert Workflow.load(tmp_path / "saved").output_schema["userId"].dtype == "int32"


def test_a_workflow_too_large_to_load_is_not_saved(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_file, "MAX_JSON_BYTES", 500)
    with pytest.raises(
        WorkflowError, match=r"at most 500 bytes.*Received: \d+, in .*workflow.json"
    ):
        fitted.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
