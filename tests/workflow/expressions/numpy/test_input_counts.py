"""Counting of a program's inputs, and what is left out under load."""

import numpy as np
import pytest

from exporter.columns.narrow_inputs import narrow_inputs
from workflow import Workflow, ops
from workflow.expressions.numpy.input_counts import COST_OF_A_RESULT, InputCounts
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.schema.column import Column


@pytest.fixture(scope="module")
def workflow():
    return Workflow(["age"] >> ops.Normalize()).fit({"age": [1.0, 2.0, 9.0]})


def results(workflow, ages):
    return NumpyInterpreter(workflow.program).results({"age": Column(np.asarray(ages))})


def test_many_results_are_counted_as_one(workflow):
    counts = InputCounts(workflow.program, workflow.training_data)
    for number in range(1_000):
        counts.add(results(workflow, [float(number), float("nan")]))
    found = counts.take()
    assert found == {
        ("rows", ""): 2_000,
        ("values", "age"): 1_000,
        ("nulls", "age"): 1_000,
        ("outside", "age"): 1_000 - 9,
    }
    assert counts.take() == {}


def test_nulls_and_elements_of_lists_are_counted_over_several_requests():
    learnt = {"age": [1, None, 9], "user": [7, 8, 8], "tags": [["a", "b"], [], ["a"]]}
    ids = ["user", "tags"] >> ops.Categorify()
    workflow = Workflow((["age"] >> ops.FillMissing(1)) + ids).fit(learnt)
    # As an export has it where the network takes the column of ids itself, too.
    program = narrow_inputs(workflow.program, {"user": "int32"})
    run, counts = NumpyInterpreter(program), InputCounts(program, workflow.training_data)
    request = {
        "age": Column(np.array([0, 5, 10])),
        "user": Column(np.array([7, 9, 8], np.int32)),
        "tags": Column(np.array(["a", "z", "b"], object), None, np.array([2, 0, 1])),
    }
    counts.add(run.results(request))
    # What stands where a value is null does not count.
    request = {
        "age": Column(np.array([-100, 2]), np.array([False, True])),
        "user": Column(np.array([9, 7], np.int32)),
        "tags": Column(
            np.array(["z", "a", "a"], object), np.array([False, True, True]), np.array([1, 2])
        ),
    }
    counts.add(run.results(request))
    assert counts.take() == {
        ("rows", ""): 5,
        ("values", "age"): 4,
        ("nulls", "age"): 1,
        ("outside", "age"): 2,
        ("values", "user"): 5,
        ("unknown", "user"): 2,
        ("values", "tags"): 5,
        ("nulls", "tags"): 1,
        ("unknown", "tags"): 1,
    }


def test_beyond_the_budget_results_are_left_out_until_the_next_take(workflow):
    counts = InputCounts(workflow.program, workflow.training_data, budget=2 * COST_OF_A_RESULT)
    for _ in range(2):
        for _ in range(5):
            counts.add(results(workflow, [3.0]))
        assert counts.take() == {("rows", ""): 2, ("values", "age"): 2}


def often():
    """Ids of the values that came three times, in a vocabulary of their own."""
    cast = ["user"] >> ops.LambdaOp(lambda user: user.cast("int32"))
    return cast >> ops.Categorify(freq_threshold=3) >> ops.Rename(postfix="_often")


def joined():
    """The rows of a table of as many users, others."""
    table = {"user": [7, 8, 9], "age": [1, 2, 3]}
    return ["user"] >> ops.JoinExternal(table, on="user") >> ops.Rename(postfix="_joined")


@pytest.mark.parametrize("beside", [often, joined])
def test_unknown_values_are_those_of_the_vocabulary_whose_share_is_expected(beside):
    ids = ["user"] >> ops.Categorify()
    workflow = Workflow(beside() + ids).fit({"user": [1, 1, 1, 2, 3]})
    program, training = workflow.program, workflow.training_data
    # Of five values two came once.
    assert training.expectations({"user": False})["unknown", "user"] == 2 / 5
    counts = InputCounts(program, training)
    counts.add(NumpyInterpreter(program).results({"user": Column(np.array([1, 2, 9, 3]))}))
    assert counts.take()["unknown", "user"] == 1


@pytest.mark.parametrize("rows", [1, 2_000])
def test_unknown_values_are_counted_where_lookups_are_made_together(rows):
    names = list("abcdef")
    known = {name: [10 * number, 10 * number + 1] for number, name in enumerate(names)}
    workflow = Workflow(names >> ops.Categorify()).fit(known)
    counts = InputCounts(workflow.program, workflow.training_data)
    run = NumpyInterpreter(workflow.program)
    # Every column is sent the values of column a.
    counts.add(run.results({name: Column(np.full(rows, 0)) for name in names}))
    found = counts.take()
    assert found["values", "a"] == rows
    assert ("unknown", "a") not in found
    assert [found["unknown", name] for name in names[1:]] == [rows] * 5


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32"])
def test_a_range_beyond_the_dtype_that_is_sent_contains_all_its_values(dtype):
    workflow = Workflow(["id"] >> ops.Normalize()).fit({"id": [-3_000_000_000, 3_000_000_000]})
    counts = InputCounts(workflow.program, workflow.training_data, dtypes={"id": dtype})
    sent = np.array([0, 1, 127], dtype)
    counts.add(NumpyInterpreter(workflow.program).results({"id": Column(sent)}))
    assert counts.take() == {("rows", ""): 3, ("values", "id"): 3}


def test_the_ends_of_a_range_are_inside_as_a_client_rounds_them():
    ends = [0.7, 1.1]
    workflow = Workflow(["price"] >> ops.Normalize()).fit({"price": ends})
    counts = InputCounts(workflow.program, workflow.training_data, dtypes={"price": "float32"})
    sent = np.array(ends, "float32").astype("float64")
    assert sent[0] < ends[0]
    assert sent[1] > ends[1]
    counts.add(NumpyInterpreter(workflow.program).results({"price": Column(sent)}))
    assert counts.take() == {("rows", ""): 2, ("values", "price"): 2}
