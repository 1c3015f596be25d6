"""Saving and loading: complete or not at all, and nothing else in the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from workflow import Workflow, WorkflowError, WorkflowFormatError, ops
from workflow.expressions import arrays


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
    assert files == {"workflow.json", "state.safetensors"}
    text = (tmp_path / "deep" / "saved" / "workflow.json").read_text()
    assert json.loads(text)["format"] == 1
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

    monkeypatch.setattr("workflow.store.write_arrays", full)
    with pytest.raises(OSError, match="No space left"):
        fitted.fit(ratings[:1]).save(tmp_path / "saved")
    assert {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir()} == before
    assert {p.name for p in tmp_path.iterdir()} == {"saved"}


def test_a_folder_with_other_files_is_left_alone(fitted, tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "thesis.txt").write_text("years of work")
    with pytest.raises(WorkflowError, match="holds other files"):
        fitted.save(tmp_path / "saved")
    with pytest.raises(WorkflowError, match="holds other files"):
        fitted.save(tmp_path / "saved" / "thesis.txt")
    assert (tmp_path / "saved" / "thesis.txt").read_text() == "years of work"


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


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WorkflowFormatError, match="nowhere"):
        Workflow.load(tmp_path / "nowhere")


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
    monkeypatch.setattr(arrays, "MAX_JSON_BYTES", 500)
    with pytest.raises(WorkflowError, match="500 are allowed"):
        fitted.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
