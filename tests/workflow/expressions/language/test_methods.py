"""Arguments of a column's methods: numbers of numpy are taken and saved, others are refused at once."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, WorkflowError, ops

DATA = pl.DataFrame(
    {"i": [1, 200, None], "x": [0.5, -3.0, None], "s": ["a", "b", None], "l": [[1, 2], [], [3]]}
)

OF_NUMPY = {
    "clip": ("i", lambda c: c.clip(np.int64(0), np.int64(5)), [1, 5, None]),
    "clip floats": ("x", lambda c: c.clip(np.float32(0.25), np.array(7)), [0.5, 0.25, None]),
    "hash": ("i", lambda c: c.hash(np.int64(7)) == c.hash(7), [True, True, None]),
    "hash_bucket": ("i", lambda c: c.hash_bucket(np.int32(1)), [0, 0, None]),
    "list_slice": ("l", lambda c: c.list_slice(np.int64(-1), np.int64(9)), [[2], [], [3]]),
    "list_pad": ("l", lambda c: c.list_pad(np.int8(1), np.int64(9)), [[1], [9], [3]]),
    "round": ("x", lambda c: c.round(np.int64(0)), [0.0, -3.0, None]),
    "power": ("i", lambda c: c ** np.array(2), [1, 40_000, None]),
}
WRONG = {
    "clip takes lower as int or float or None": ("i", lambda c: c.clip(True)),
    "clip takes upper as int or float or None": ("x", lambda c: c.clip(0, "a")),
    "clip takes numbers as bounds.*np.maximum": ("x", lambda c: c.clip(upper=c + 1)),
    "clip needs a lower or an upper bound": ("x", lambda c: c.clip(10**400)),
    "hash takes seed as int": ("i", lambda c: c.hash(True)),
    "list_slice takes start as int": ("l", lambda c: c.list_slice(1.0)),
    "list_pad takes length as int": ("l", lambda c: c.list_pad(2.5)),
    "Expected a constant of string": ("s", lambda c: c == "\ud800"),
}


@pytest.mark.parametrize("case", OF_NUMPY.values(), ids=OF_NUMPY)
def test_a_number_of_numpy_is_saved_as_any_other(case, tmp_path):
    name, function, expected = case
    workflow = Workflow([name] >> ops.LambdaOp(function)).fit(DATA)
    workflow.save(tmp_path / "saved")
    for each in (workflow, Workflow.load(tmp_path / "saved")):
        assert each.transform(DATA).collect()[name].to_list() == expected


@pytest.mark.parametrize("message", WRONG)
def test_what_could_not_be_saved_or_computed_is_refused_when_it_is_written(message):
    name, function = WRONG[message]
    with pytest.raises(WorkflowError, match=message):
        Workflow([name] >> ops.LambdaOp(function)).fit(DATA)
