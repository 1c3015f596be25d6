"""PretrainedVectors: saved, mapped by the server's step, and refused for other columns."""

import mmap
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from exporter.write.python_step import writer
from workflow import Schema, Workflow, WorkflowError, ops
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program
from workflow.schema.column import Column
from workflow.schema.training_data import TrainingData

MATRIX = np.arange(8, dtype=np.float32).reshape(4, 2)
ROWS = {"item": [7, 9, None, 5]}
EXPECTED = [[2.0, 3.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "v.npy", MATRIX)
    return tmp_path / "v.npy"


def made(workflow, rows=ROWS):
    return workflow.transform(rows).collect().to_series().to_list()


def test_a_saved_workflow_needs_no_file(file, tmp_path):
    vectors = ["item"] >> ops.PretrainedVectors(file, ids=[9, 7, 4, 3])
    workflow = Workflow(vectors >> ops.Rename(postfix="_vector")).fit(ROWS)
    assert made(workflow) == EXPECTED
    column = workflow.output_schema["item_vector"]
    assert column.properties["value_count"] == {"min": 2, "max": 2}
    assert column.has_tag("continuous")
    workflow.save(tmp_path / "saved")
    file.unlink()
    loaded = Workflow.load(tmp_path / "saved")
    assert made(loaded) == EXPECTED
    assert made(loaded.fit(ROWS)) == EXPECTED


@pytest.mark.parametrize("change", ["another", "shorter", "in place"])
def test_a_table_that_changes_after_fit_changes_nothing(file, tmp_path, change):
    table = MATRIX.copy() if change == "in place" else file
    workflow = Workflow(["item"] >> ops.PretrainedVectors(table, ids=[9, 7, 4, 3])).fit(ROWS)
    if change == "in place":
        table[:] = -1
    else:  # Reading a map of a file that was cut ends the process.
        np.save(file, np.full_like(MATRIX, np.nan)[: None if change == "another" else 0])
    assert made(workflow) == EXPECTED
    workflow.save(tmp_path / "saved")
    assert made(Workflow.load(tmp_path / "saved")) == EXPECTED


def test_a_disk_without_space_for_the_vectors_is_said(file, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(file.parent / "no such folder"))
    with pytest.raises(
        WorkflowError, match=r"able to write a temporary file of vectors\. Received: No such file"
    ):
        Workflow(["item"] >> ops.PretrainedVectors(file, ids=[9, 7, 4, 3])).fit(ROWS)


def test_a_server_reads_the_rows_of_a_request_alone(file, tmp_path):
    workflow = Workflow(["item"] >> ops.PretrainedVectors(file, ids=[9, 7, 4, 3])).fit(ROWS)
    folder = tmp_path / "step"
    folder.mkdir()
    writer(workflow.program, TrainingData())(folder)
    program = load_program(folder)
    (table,) = (s.parameters["table"] for s in program.steps if s.verb == "gather")
    base = table.values
    while not isinstance(base, np.memmap):
        assert base.base is not None, "The vectors are copied into memory."
        base = base.base
    answer = NumpyInterpreter(program)({"item": Column(np.array([7, 9]))})["item"]
    assert answer.values.tolist() == [2, 3, 0, 1]
    assert answer.lengths.tolist() == [2, 2]


def test_a_server_reads_no_more_of_the_file_than_the_rows(tmp_path):
    vectors = np.ones((50_000, 16), np.float32)
    workflow = Workflow(["item"] >> ops.PretrainedVectors(vectors)).fit({"item": [3]})
    (tmp_path / "step").mkdir()
    writer(workflow.program, TrainingData())(tmp_path / "step")
    program = load_program(tmp_path / "step")
    interpreter = NumpyInterpreter(program)
    # The maps of the process that read rows here and there ("rr"), without the pages beside them.
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    own = [m for m in maps if str(tmp_path) in m and " rr " in m.partition("VmFlags:")[2]]
    sizes = [int(re.search(r"Size: +(\d+) kB", m)[1]) * 1024 for m in own]
    assert vectors.nbytes <= sum(sizes) <= vectors.nbytes + 2 * mmap.PAGESIZE
    assert interpreter({"item": Column(np.array([49_999]))})["item"].values.tolist() == [1.0] * 16


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ({"item": ["a"]}, {"ids": [1, 2, 3, 4]}, "ids of vectors as strings.*Received: integers"),
        ({"item": ["a"]}, {}, r"Received: integers \(row numbers\)"),
        ({"item": [1]}, {"ids": list("abcd")}, "ids of vectors as integers.*Received: strings"),
        ({"item": [[1]]}, {}, "single ids. Received: column 'item'.*training.pretrained_table"),
        ({"item": [2.0, 1.5]}, {}, "PretrainedVectors needs integers.*'item'.*with 1.5 in row 1"),
    ],
)
def test_columns_of_another_kind(rows, settings, message):
    with pytest.raises(WorkflowError, match=message):
        Workflow(["item"] >> ops.PretrainedVectors(MATRIX, **settings)).fit(rows)


def test_integers_that_pandas_made_floats_are_ids():
    rows = {"item": [2.0, float("nan"), 0.0]}
    made = Workflow(["item"] >> ops.PretrainedVectors(MATRIX)).fit_transform(rows).collect()
    assert made["item"].to_list() == [[*MATRIX[2]], [0.0] * len(MATRIX[0]), [*MATRIX[0]]]


def test_a_damaged_state_is_refused():
    operator = ops.PretrainedVectors(MATRIX)
    for state in (
        {},
        {"vectors": Column(np.zeros(4, np.float32), None, np.array([1, 3]))},
        {"vectors": Column(np.zeros(4), None, np.array([2, 2]))},
        {"vectors": Column(np.zeros(4, np.float32))},
    ):
        with pytest.raises(WorkflowError, match="state of vectors of one width"):
            operator.from_config({}, state)


def test_it_is_fitted_to_columns_alone():
    workflow = Workflow(["item"] >> ops.PretrainedVectors(MATRIX))
    frame = pl.DataFrame({"item": pl.Series([3, 4, -1], dtype=pl.Int32)})
    assert made(workflow.fit(frame, schema=Schema([])), frame) == [[6, 7], [0, 0], [0, 0]]


def test_vectors_of_other_values_are_refused():
    rows = {"item": [f"new {n}" for n in range(30)]}
    vectors = {"id": ["old 1", "old 2"], "v": [[1.0], [2.0]]}
    message = r"'item', such as \['new 0', .*none of 30 values; the ids of the 2 vectors are such as \['old 1'"
    with pytest.raises(WorkflowError, match=message):
        Workflow(["item"] >> ops.PretrainedVectors(vectors, ids="id")).fit(rows)
    rows["item"][29] = "old 2"
    made = Workflow(["item"] >> ops.PretrainedVectors(vectors, ids="id")).fit(rows)
    assert made.transform(rows).collect()["item"].to_list()[28:] == [[0.0], [2.0]]
    numbers = {"item": list(range(100, 130))}
    with pytest.raises(
        WorkflowError, match="none of 30 values; the ids of the 4 vectors are row numbers"
    ):
        Workflow(["item"] >> ops.PretrainedVectors(MATRIX)).fit(numbers)


def test_named_ids_after_categorify_are_refused_and_row_numbers_are_not():
    ids = ["item"] >> ops.Categorify()
    with pytest.raises(WorkflowError, match=r"'item' after Categorify or the like.*before it"):
        Workflow(ids >> ops.PretrainedVectors(MATRIX, ids=[9, 7, 4, 3])).fit(ROWS)
    own = np.eye(6, dtype=np.float32)
    workflow = Workflow(ids >> ops.PretrainedVectors(own)).fit(ROWS)
    assert np.argmax(made(workflow), axis=1).tolist() == [4, 5, 1, 3]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["b", "a", "c"])])
def test_ids_may_be_categories(dtype, tmp_path):
    """As pandas reads them with dtype="category"."""
    table = pl.DataFrame({"id": pl.Series(["a", "b"], dtype=dtype), "vector": [[1.0], [2.0]]})
    rows = {"item": ["b", "a", "c", None] * 10}
    of_table = {"table": table, "ids": "id"}
    of_array = {"table": np.array([[1.0], [2.0]], np.float32), "ids": table["id"]}
    for settings in (of_table, of_array):
        workflow = Workflow(["item"] >> ops.PretrainedVectors(**settings)).fit(rows)
        workflow.save(tmp_path / "saved")
        for each in (workflow, Workflow.load(tmp_path / "saved")):
            assert made(each, rows)[:4] == [[2.0], [1.0], [0.0], [0.0]]
